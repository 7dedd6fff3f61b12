"""Reading config.json: equal to the descriptors, and every refusal names file, key and value."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchx.architectures import Architecture, load_architecture
from benchx.architectures.parameters import parameters
from benchx.core.errors import BenchxError

K3_FULL = [*range(4, 93, 4), 93]
K3_TEXT: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 7168, "vocab_size": 163840,
    "num_hidden_layers": 93, "max_position_embeddings": 1048576, "intermediate_size": 33792,
    "num_attention_heads": 96, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True, "mla_use_output_gate": True,
    "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2,
    "routed_expert_hidden_size": 3584, "moe_intermediate_size": 3072, "latent_moe_use_norm": True,
    "first_k_dense_replace": 1, "tie_word_embeddings": False, "attn_res_block_size": 12,
    "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
    "moe_router_activation_func": "sigmoid", "num_expert_group": 1, "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "linear_attn_config": {
        "num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
        "use_full_rank_gate": True, "full_attn_layers": K3_FULL,
        "kda_layers": [layer for layer in range(1, 94) if layer not in K3_FULL],
    },
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8192, "vocab_size": 128256, "num_hidden_layers": 80,
    "max_position_embeddings": 131072, "intermediate_size": 28672, "num_attention_heads": 64,
    "num_key_value_heads": 8, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "vocab_size": 129280,
    "num_hidden_layers": 61, "max_position_embeddings": 131072, "intermediate_size": 18432,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "tie_word_embeddings": False,
    "scoring_func": "sigmoid", "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
}  # fmt: skip
QWEN: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 4096, "vocab_size": 151936, "num_hidden_layers": 94,
    "max_position_embeddings": 131072, "intermediate_size": 12288, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
}  # fmt: skip

Read = Callable[[object], Architecture]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def call(content: object) -> Architecture:
        path = tmp_path / "config.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return load_architecture(str(path))

    return call


@pytest.fixture
def refusal(read: Read) -> Callable[[object], str]:
    def call(content: object) -> str:
        with pytest.raises(BenchxError) as caught:
            read(content)
        return str(caught.value)

    return call


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"model_type": "kimi_k3", "text_config": K3_TEXT}, "kimi-k3"),
        (LLAMA, "llama-3.1-70b"),
        (DEEPSEEK, "deepseek-v3"),
        (QWEN, "qwen3-235b-a22b"),
    ],
)
def test_a_published_config_describes_the_shipped_model(
    read: Read, config: dict[str, Any], name: str
) -> None:
    found, shipped = read(config), load_architecture(name)
    told = {"name", "title", "sources", "unconfirmed", "omitted", "checkpoint"}
    assert found.model_dump(exclude=told) == shipped.model_dump(exclude=told)


def test_a_folder_stands_for_the_config_in_it(read: Read, tmp_path: Path) -> None:
    read(LLAMA)
    assert load_architecture(str(tmp_path)).hidden == 8192


NATIVE: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 128, "vocab_size": 4096, "num_hidden_layers": 4,
    "model_max_length": 32768, "intermediate_size": 256, "num_attention_heads": 4,
    "q_lora_rank": None, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "linear_num_heads": 4, "linear_head_dim": 32, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "mlp_layer_types": ["dense"] + ["sparse"] * 3, "num_experts": 8, "num_experts_per_token": 2,
    "num_shared_experts": 1, "moe_intermediate_size": 64, "tie_word_embeddings": False,
}  # fmt: skip


def test_the_form_in_which_transformers_writes_kimi_linear_is_read(read: Read) -> None:
    arch = read(NATIVE)
    assert arch.kinds == ("kda", "kda", "kda", "mla")
    assert arch.kda is not None
    assert (arch.kda.heads, arch.kda.head_dim, arch.kda.conv) == (4, 32, 4)
    assert arch.is_moe == (False, True, True, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("layer_types", ["full_attention"] * 3), ("mlp_layer_types", ["sparse", "dense"] * 2)],
)
def test_layer_kinds_that_do_not_fit_are_refused_by_name(
    refusal: Callable[[object], str], key: str, value: object
) -> None:
    assert key in refusal(NATIVE | {key: value})


def test_experts_are_sized_by_their_latent_width(read: Read) -> None:
    latent = parameters(read(K3_TEXT)).routed
    text = {key: value for key, value in K3_TEXT.items() if key != "routed_expert_hidden_size"}
    text["latent_moe_use_norm"] = False
    assert parameters(read(text)).routed == 2 * latent


@pytest.mark.parametrize("key", ["hidden_size", "kv_lora_rank", "num_experts_per_token"])
def test_a_missing_size_is_named(refusal: Callable[[object], str], key: str) -> None:
    text = {name: value for name, value in K3_TEXT.items() if name != key}
    told = refusal({"text_config": text})
    assert "config.json" in told
    assert f"text_config.{key}" in told
    assert "missing" in told


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("model_type", "model_type is missing; known: kimi_linear"),
        ("max_position_embeddings", "max_position_embeddings (or model_max_length) is missing"),
    ],
)
def test_a_field_that_every_config_has_is_missed_by_its_name(
    refusal: Callable[[object], str], key: str, told: str
) -> None:
    assert told in refusal({name: value for name, value in LLAMA.items() if name != key})


def test_a_missing_alias_names_both_spellings(refusal: Callable[[object], str]) -> None:
    text = {name: value for name, value in DEEPSEEK.items() if name != "num_experts_per_tok"}
    assert "num_experts_per_token (or num_experts_per_tok) is missing" in refusal(text)


def test_aliases_that_contradict_each_other_are_refused(refusal: Callable[[object], str]) -> None:
    told = refusal(DEEPSEEK | {"num_experts_per_token": 6})
    assert "num_experts_per_token 6 and num_experts_per_tok 8 contradict" in told


def test_text_that_is_no_json_is_refused(refusal: Callable[[object], str]) -> None:
    assert "not JSON" in refusal("{'a': 1}")
    assert "not JSON" in refusal("[" * 100_000)
    assert "expected a mapping" in refusal("[1]")


def test_an_unknown_architecture_is_named_with_the_nearest(
    refusal: Callable[[object], str],
) -> None:
    told = refusal(DEEPSEEK | {"model_type": "deepseek_v33"})
    assert "'deepseek_v33' is not known; did you mean 'deepseek_v3'?" in told


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hidden_size": "8192"}, "hidden_size is '8192'; expected a whole number"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"num_key_value_heads": 7}, "a divisor of heads (64)"),
        ({"num_attention_heads": 60}, "head_dim is missing"),
        ({"tie_word_embeddings": "no"}, "expected true or false"),
        ({"use_sliding_window": True}, "use_sliding_window is set"),
        ({"hidden_size": 2**50}, "at most"),
        ({"num_hidden_layers": 0}, "at least 1"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; expected silu or situ"),
        ({"hidden_act": "situ"}, "activation_situ_beta is missing"),
    ],
)
def test_a_value_that_can_not_be_is_refused(
    refusal: Callable[[object], str], change: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(LLAMA | change)


def test_layers_named_twice_or_not_at_all_are_refused(refusal: Callable[[object], str]) -> None:
    linear = K3_TEXT["linear_attn_config"] | {"full_attn_layers": [1, 4]}
    told = refusal(K3_TEXT | {"linear_attn_config": linear})
    assert "do not name each of the 93 layers once" in told


def test_more_experts_chosen_than_there_are_is_refused(refusal: Callable[[object], str]) -> None:
    assert "at most experts (256)" in refusal(DEEPSEEK | {"num_experts_per_tok": 300})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"n_group": 3}, "equal parts of 256 experts"),
        ({"topk_group": 9}, "at most groups (8)"),
        ({"n_group": 128, "topk_group": 1}, "with top_k (8) experts in them"),
        ({"scoring_func": "tanh"}, "scoring_func is 'tanh'; expected sigmoid or softmax"),
        ({"routed_scaling_factor": -1}, "expected a number above 0"),
    ],
)
def test_a_router_that_can_not_be_is_refused(
    refusal: Callable[[object], str], change: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(DEEPSEEK | change)


def test_attention_that_is_not_modelled_is_refused(refusal: Callable[[object], str]) -> None:
    assert "index_topk" in refusal(DEEPSEEK | {"index_topk": 2048})


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchxError, match="No such file"):
        load_architecture(str(tmp_path / "config.json"))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BenchxError, match="did you mean 'kimi-k3'"):
        load_architecture("kimi-k4")


def test_a_bound_of_the_gate_that_is_no_number_is_refused(
    refusal: Callable[[object], str],
) -> None:
    for bound in ("-5", [-5.0], True, 0, float("-inf"), float("nan")):
        linear = K3_TEXT["linear_attn_config"] | {"gate_lower_bound": bound}
        told = refusal({"text_config": K3_TEXT | {"linear_attn_config": linear}})
        expected = (
            f"text_config.linear_attn_config.gate_lower_bound is {bound!r}; expected a number"
        )
        assert expected in told


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA | {"model_type": "mistral", "sliding_window": 4096}, "sliding_window is 4096"),
        (
            LLAMA | {"model_type": "qwen3", "layer_types": ["sliding_attention"] * 80},
            "layer_types names 'sliding_attention'",
        ),
        (QWEN | {"decoder_sparse_step": 2}, "decoder_sparse_step is 2; only 1"),
        (QWEN | {"mlp_only_layers": [3]}, "mlp_only_layers is [3]; only []"),
        (DEEPSEEK | {"moe_layer_freq": 2}, "moe_layer_freq is 2; only 1"),
        (DEEPSEEK | {"n_routed_experts": None}, "num_experts (or n_routed_experts, num_local"),
        (LLAMA | {"num_key_value_heads": 0}, "kv_heads"),
        (LLAMA | {"rope_scaling": "yarn"}, "rope_scaling is 'yarn'; expected a mapping"),
        (LLAMA | {"quantization_config": "fp8"}, "quantization_config.quant_method is missing"),
        (LLAMA | {"torch_dtype": "float8"}, "dtype (or torch_dtype) is 'float8'"),
        (K3_TEXT | {"linear_attn_config": None}, "linear_attn_config is missing"),
    ],
)
def test_what_would_change_cache_or_weights_unseen_is_refused(
    refusal: Callable[[object], str], config: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(config)


def test_a_switch_that_is_off_is_no_reason_to_refuse(read: Read) -> None:
    off = {"sliding_window": None, "moe_layer_freq": None, "text_config": None}
    assert read(LLAMA | off | {"model_type": "mistral"}).count("gqa") == 80
    windows = {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    assert read(LLAMA | windows).count("gqa") == 80
    usual = {
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "layer_types": ["full_attention"] * 94,
    }
    assert read(QWEN | usual).moe is not None


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (
            {
                "text_config": K3_TEXT,
                "quantization_config": {
                    "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
                },
            },
            "kimi-k3",
        ),
        (DEEPSEEK | {"quantization_config": {"quant_method": "fp8"}}, "deepseek-v3"),
        (LLAMA | {"torch_dtype": "bfloat16"}, "llama-3.1-70b"),
    ],
)  # fmt: skip
def test_the_published_weights_have_the_bytes_that_their_quantisation_says(
    read: Read, config: dict[str, Any], name: str
) -> None:
    found, shipped = read(config), load_architecture(name)
    assert found.checkpoint == shipped.checkpoint
    kept = found.checkpoint
    size = parameters(found).weight_bytes(routed=kept.routed_experts, others=kept.others)
    same = parameters(shipped).weight_bytes(routed=kept.routed_experts, others=kept.others)
    assert size == same


def test_weights_in_fp32_count_four_bytes_each(read: Read) -> None:
    assert read(LLAMA | {"dtype": "float32"}).checkpoint.others == "float32"
    assert read({"dtype": "float32", "text_config": LLAMA}).checkpoint.others == "float32"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"text_config": K3_TEXT, "vision_config": {}}, "vision tower"),
        (DEEPSEEK | {"num_nextn_predict_layers": 1}, "multi-token prediction module"),
        (
            LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            "rope scaling (llama3), which changes positions but no size",
        ),
        (
            LLAMA | {"quantization_config": {"quant_method": "awq", "bits": 4}},
            "quantisation by awq: weights are counted in bfloat16",
        ),
        (LLAMA | {"model_type": "qwen2"}, "biases of attention"),
    ],
)
def test_what_is_left_out_is_said(read: Read, config: dict[str, Any], told: str) -> None:
    assert read(config).omitted == (told,)


def test_nothing_is_left_out_of_a_plain_config(read: Read) -> None:
    plain = {"num_nextn_predict_layers": 0, "rope_scaling": {"rope_type": "default"}}
    assert read(LLAMA | plain).omitted == ()


def test_yarn_stretches_the_context_that_a_config_names(read: Read) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    named = LLAMA | {"rope_scaling": yarn}
    assert read(named | {"max_position_embeddings": 32768}).max_context == 131072
    assert read(named | {"max_position_embeddings": 131072}).max_context == 131072
    del yarn["original_max_position_embeddings"]
    assert read(LLAMA | {"rope_scaling": yarn}).max_context == 131072


@pytest.mark.parametrize("kind", ["linear", "dynamic"])
def test_linear_and_dynamic_scaling_multiply_the_context_that_a_config_names(
    read: Read, kind: str
) -> None:
    scaling: dict[str, Any] = {"type": kind, "factor": 4.0}
    config = LLAMA | {"rope_scaling": scaling, "max_position_embeddings": 4096}
    assert read(config).max_context == 16384
    scaling["original_max_position_embeddings"] = 2048  # then what is named is scaled already
    assert read(config).max_context == 8192


@pytest.mark.parametrize("kind", ["llama3", "longrope", "mrope"])
def test_other_known_scaling_leaves_the_context_as_named(read: Read, kind: str) -> None:
    found = read(LLAMA | {"rope_scaling": {"rope_type": kind, "factor": 8.0}})
    assert found.max_context == 131072
    assert not any("unknown kind" in text for text in found.omitted)


def test_scaling_of_an_unknown_kind_is_said_to_leave_the_context_open(read: Read) -> None:
    found = read(LLAMA | {"rope_scaling": {"rope_type": "spiral", "factor": 8.0}})
    assert found.max_context == 131072
    assert any("unknown kind spiral" in text for text in found.omitted)


def test_tied_embeddings_may_be_named_beside_the_text_model(read: Read) -> None:
    text = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    assert read({"tie_word_embeddings": True, "text_config": text}).tied_embeddings
    assert not read({"tie_word_embeddings": True, "text_config": LLAMA}).tied_embeddings
