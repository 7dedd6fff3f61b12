"""The online softmax of the Hopper kernels, for accumulators in the matrix unit's layout."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def tile_weights(s, top, start, last, seen, scale):
    """Weights of a tile of scores [rows, keys] relative to the new running maximum, and that.

    The tile's keys begin at position `start`. Positions from `seen` on are hidden from some row;
    each row sees up to `last` [rows].
    """
    s = s * scale
    if start + s.shape[1] > seen:
        layout: gl.constexpr = gl.SliceLayout(0, s.type.layout)
        position = start + gl.arange(0, s.shape[1], layout=layout)
        s = gl.where(position[None, :] <= last[:, None], s, float("-inf"))
    higher = gl.maximum(top, gl.max(s, axis=1))
    return gl.exp2(s - higher[:, None]), higher


@gluon.jit
def scaled(acc, factor):
    """Rows of acc [rows, columns] times `factor` [rows], which may be in another layout."""
    return acc * gl.convert_layout(factor, gl.SliceLayout(1, acc.type.layout))[:, None]
