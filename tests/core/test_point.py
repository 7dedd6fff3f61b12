"""Identity of points: what makes two of them the same, and which share their inputs."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from benchx.core.point import Point
from benchx.store.shape import restored

POINT = Point(
    kind="kernel", subject="kda_prefill", backend="fla", params={"heads": 4, "seqlens": "8x1024"}
)
PARAMS = st.dictionaries(
    st.sampled_from(["heads", "batch", "dtype", "gate", "qk_l2norm", "lower_bound"]),
    st.integers() | st.booleans() | st.text(max_size=5) | st.floats(-1e6, 1e6),
    max_size=6,
)


def test_the_order_of_params_does_not_change_the_identity() -> None:
    turned = Point(
        kind="kernel",
        subject="kda_prefill",
        backend="fla",
        params={"seqlens": "8x1024", "heads": 4},
    )
    assert turned.point_id == POINT.point_id
    assert turned == POINT


def test_every_field_is_part_of_the_identity() -> None:
    others = [
        replace(POINT, kind="model"),
        replace(POINT, subject="kda_decode"),
        replace(POINT, backend="cudnn"),
        replace(POINT, params={"heads": 4, "seqlens": "8x1023"}),
        replace(POINT, part=1),
    ]
    assert len({POINT.point_id, *(other.point_id for other in others)}) == 6


def test_backends_of_one_combination_share_a_group() -> None:
    assert replace(POINT, backend="cudnn").group_id == POINT.group_id
    assert replace(POINT, params={"heads": 8, "seqlens": "8x1024"}).group_id != POINT.group_id


def test_the_identity_is_stable_across_releases() -> None:
    """A resumed run finds its points by this id; a change would measure everything again."""
    assert POINT.point_id == "0d4aceac6181"


def test_a_label_names_operator_backend_and_values() -> None:
    assert POINT.label() == "kda_prefill/fla heads=4 seqlens=8x1024"


@given(params=PARAMS, part=st.integers(0, 9))
def test_json_restores_an_equal_point(params: dict[str, int | str], part: int) -> None:
    point = Point(kind="kernel", subject="op", backend="b", params=params, part=part)
    again = restored(json.loads(json.dumps(point.to_json())), Point)
    assert again == point
    assert again.point_id == point.point_id
