"""Descriptors: contradictions are refused with file and line; patterns follow from the fields."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchx.architectures import load_architecture, shipped_architectures
from benchx.core.errors import BenchxError, ScenarioError

SMALL = {
    "schema": 1, "name": "small", "title": "Small", "sources": ["here"], "hidden": 64,
    "vocab": 100, "layers": 4, "max_context": 1024, "full_attention": [4],
    "mla": {"heads": 2, "kv_lora": 32, "nope_dim": 16, "rope_dim": 8, "value_dim": 16},
    "kda": {"heads": 2, "head_dim": 16, "value_dim": 16},
    "dense_layers": 1, "dense_intermediate": 128,
    "moe": {"experts": 4, "top_k": 2, "shared": 1, "intermediate": 32},
}  # fmt: skip


def refused(folder: Path, **change: object) -> str:
    data = {key: value for key, value in (SMALL | change).items() if value is not None}
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ScenarioError) as caught:
        load_architecture(str(path))
    return str(caught.value)


@pytest.mark.parametrize("name", shipped_architectures())
def test_every_shipped_descriptor_is_named_after_its_file_and_says_where_it_is_from(
    name: str,
) -> None:
    arch = load_architecture(name)
    assert arch.name == name
    assert all(arch.sources)


@pytest.mark.parametrize("name", shipped_architectures())
def test_unconfirmed_names_fields_that_exist(name: str) -> None:
    arch = load_architecture(name)
    for key in arch.unconfirmed:
        value: object = arch
        for step in key.split("."):
            value = getattr(value, step)
        assert value is not None, key


def test_layers_alternate_as_the_descriptor_says() -> None:
    kinds = load_architecture("kimi-k3").kinds
    assert kinds[:4] == ("kda", "kda", "kda", "mla")
    assert kinds[-2:] == ("mla", "mla") or kinds[-1] == "mla"
    assert (kinds.count("kda"), kinds.count("mla")) == (69, 24)


def test_a_contradiction_is_refused(tmp_path: Path) -> None:
    assert "different layers from 1 to 4" in refused(tmp_path, full_attention=[5])
    assert "different layers from 1 to 4" in refused(tmp_path, full_attention=[4, 4])
    assert "exactly one of `mla` and `gqa`" in refused(tmp_path, mla=None)
    assert "the shape of the other layers" in refused(tmp_path, kda=None)
    assert "layers that differ" in refused(tmp_path, full_attention=None)
    assert "at most layers (4)" in refused(tmp_path, dense_layers=5)
    assert "dense_intermediate" in refused(tmp_path, dense_intermediate=None)


def test_an_unknown_key_is_answered_with_file_line_and_the_nearest(tmp_path: Path) -> None:
    told = refused(tmp_path, hiden=64)
    assert "small.yaml:" in told
    assert "did you mean 'hidden'?" in told


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BenchxError, match="not UTF-8"):
        load_architecture(str(path))
