"""Long values are shortened only where they stay told apart."""

from __future__ import annotations

from benchx.reporting import wording

MIXED = "1300+547+2048+963+271+3063"


def test_operators_read_as_titles() -> None:
    names = ("kda_prefill", "gated_delta_rule", "mla_decode")
    titles = [wording.title_of(name) for name in names]
    assert titles == ["KDA prefill", "Gated delta rule", "MLA decode"]


def test_a_long_mix_of_lengths_is_shortened_to_count_and_sum() -> None:
    assert wording.short_lengths(MIXED) == "6 mixed (8k)"


def test_short_lists_and_words_stay_as_they_are() -> None:
    for text in ("8192", "8x1024", "17+0+65", "float8_e4m3+something_else"):
        assert wording.short_lengths(text) == text


def test_a_value_of_no_letters_is_a_dash() -> None:
    assert wording.value_text("") == wording.value_text(None) == "-"


def test_two_mixes_of_equal_count_and_sum_are_printed_in_full() -> None:
    other = "1301+546+2048+963+271+3063"
    assert wording.distinct_texts([MIXED, other]) == {MIXED: MIXED, other: other}


def test_shortened_values_are_explained() -> None:
    assert wording.shortened(["8192", MIXED]) == {"6 mixed (8k)": MIXED}


def test_a_category_names_the_axes_that_need_a_name() -> None:
    text = wording.category_text({"heads": 96, "batch": 8, "context": 4096}, {})
    assert text == "H96  B8  context 4096"


def test_token_counts_use_k_only_for_whole_multiples() -> None:
    counts = (512, 8192, 8193, 2**20)
    assert [wording.tokens_text(count) for count in counts] == ["512", "8k", "8193", "1M"]


def test_tables_print_lengths_with_letters_and_sizes_in_bytes_with_their_unit() -> None:
    axes = {
        "context": (131072, "128k"),
        "seqlens": ("8192", "8k"),
        "input_len": (1000, "1000"),
        "heads": (1024, "1024"),
        "block_bytes": (16384, "16 KiB"),
        "total_bytes": (2**30, "1 GiB"),
        "tokens": (1, "1"),
        "folder": ("run-1024", "run-1024"),
    }
    printed = {axis: wording.axis_text(axis, value) for axis, (value, _) in axes.items()}
    assert printed == {axis: text for axis, (_, text) in axes.items()}


def test_a_batch_of_equal_lengths_keeps_its_count() -> None:
    assert wording.axis_text("seqlens", "8x1024") == "8x1k"
    assert wording.axis_text("seqlens", "1024x2048+100") == "1024x2k+100"
    assert wording.axis_text("seqlens", MIXED) == "6 mixed (8k)"


def test_sizes_that_three_digits_do_not_tell_apart_are_printed_in_full() -> None:
    assert wording.axis_text("block_bytes", 2**30 + 1) == "1073741825 B"


def test_different_values_of_an_axis_are_printed_differently() -> None:
    other = "1301+546+2048+963+271+3063"
    values = ["8192", MIXED, other, "8x1024"]
    printed = wording.axis_texts("seqlens", values)
    assert list(printed) == values
    assert len(set(printed.values())) == len(values)


def test_captions_leave_out_axes_without_a_value() -> None:
    axes = {"folder": "", "context": 131072, "route": "copy", "pinned": False}
    assert wording.fixed_texts(axes) == ["context 128k", "route copy", "pinned no"]
