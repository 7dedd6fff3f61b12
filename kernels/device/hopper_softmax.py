"""What the Hopper kernels share: the online softmax, and values that nobody may weigh."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared


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


@gluon.jit
def clear_tail(values, start, stop):
    """Zero the rows from position `stop` on, of values [rows, columns] in shared memory.

    They are another sequence's or nobody's, and a weight of 0 times a NaN there is a NaN. Rows
    before `stop` are rewritten as they are.
    """
    rows: gl.constexpr = values.shape[0]
    if start + rows > stop:
        layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
        position = start + gl.arange(0, rows, layout=gl.SliceLayout(1, layout))
        held = values.load(layout)
        held = gl.where((position < stop)[:, None], held, gl.zeros_like(held))
        values.store(held)
        fence_async_shared()
