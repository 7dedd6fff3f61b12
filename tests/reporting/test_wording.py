"""Long values are shortened only where they stay told apart."""

from __future__ import annotations

from benchx.reporting import wording

MIXED = "1300+547+2048+963+271+3063"


def test_operators_read_as_titles() -> None:
    names = ("kda_prefill", "gated_delta_rule", "mla_decode")
    titles = [wording.title_of(name) for name in names]
    assert titles == ["KDA prefill", "Gated delta rule", "MLA decode"]


def test_a_long_mix_of_lengths_is_shortened_to_count_and_sum() -> None:
    assert wording.short_lengths(MIXED) == "6 mixed (8192)"


def test_short_lists_and_words_stay_as_they_are() -> None:
    for text in ("8192", "8x1024", "17+0+65", "float8_e4m3+something_else"):
        assert wording.short_lengths(text) == text


def test_a_value_of_no_letters_is_a_dash() -> None:
    assert wording.value_text("") == wording.value_text(None) == "-"


def test_two_mixes_of_equal_count_and_sum_are_printed_in_full() -> None:
    other = "1301+546+2048+963+271+3063"
    assert wording.distinct_texts([MIXED, other]) == {MIXED: MIXED, other: other}


def test_shortened_values_are_explained() -> None:
    assert wording.shortened(["8192", MIXED]) == {"6 mixed (8192)": MIXED}


def test_a_category_names_the_axes_that_need_a_name() -> None:
    text = wording.category_text({"heads": 96, "batch": 8, "context": 4096}, {})
    assert text == "H96  B8  context 4096"


def test_token_counts_use_k_only_for_whole_multiples() -> None:
    counts = (512, 8192, 8193, 2**20)
    assert [wording.tokens_text(count) for count in counts] == ["512", "8k", "8193", "1M"]
