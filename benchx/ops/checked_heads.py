"""Which heads of a large point the fp64 truth covers: other ones in each launch."""

from __future__ import annotations

FEWEST_HEADS = 3

_TURN = 2
"""By how many heads a turn moves on. Not by one: then the last head's turn is the first head."""


def checked_heads(heads: int, share: float, turn: int) -> tuple[int, ...] | None:
    """The heads to check, evenly spread over all; None means all of them.

    Turn 0 has the first and the last one. Later turns move on, so that launches check different
    heads of the same call.

    Args:
        heads: How many there are.
        share: Of them, what can be afforded; three are always.
        turn: Any number; equal ones give equal heads.
    """
    affordable = max(FEWEST_HEADS, int(heads * min(share, 1.0)))
    if affordable >= heads:
        return None
    last = heads - 1
    spread = (round(i * last / (affordable - 1)) for i in range(affordable))
    return tuple(sorted({(head + _TURN * turn) % heads for head in spread}))


def with_heads(method: str, heads: tuple[int, ...] | None, total: int) -> str:
    """`method`, and how many heads it covers of how many: `fp64 chunked, 3 of 96 heads (0+48+95)`.

    Of more than four the first is named; the others follow evenly.
    """
    if heads is None:
        return method
    named = "+".join(map(str, heads)) if len(heads) <= 4 else f"evenly spread from {heads[0]}"
    return f"{method}, {len(heads)} of {total} heads ({named})"
