"""Launching one compiled kernel again without looking it up again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.runtime import JITFunction


class Launcher:
    """A kernel with its constants, whose arguments' types and alignments never change.

    Triton finds the compiled kernel in every call by all of those, which takes 20 to 60 us, more
    than a small decode step. A launcher belongs to one form of arguments (`_forms`), so it asks
    once. Floats have to be floats: Triton compiles an int of 1 into the kernel.
    """

    def __init__(
        self, kernel: JITFunction[Any], constants: Mapping[str, int], options: Mapping[str, int]
    ) -> None:
        """`constants` are all the kernel's constants; `options` are those of the compiler."""
        self._kernel = kernel
        self._constants = dict(constants)
        self._options = dict(options)
        # One tuple, assigned at once: another thread must not see one half without the other.
        self._compiled: tuple[Any, tuple[Any, ...]] | None = None

    def __call__(self, grid: tuple[int, int, int], *arguments: object) -> None:
        """Launch on the current stream; `arguments` are all others, in the kernel's order."""
        known = self._compiled
        if known is not None:
            compiled, values = known
            compiled[grid](*arguments, *values)
            return
        # The interpreter has nothing to compile, returns None, and so is asked every time.
        compiled = self._kernel[grid](*arguments, **self._constants, **self._options)
        if compiled is not None:
            names = self._kernel.arg_names[len(arguments) :]
            self._compiled = compiled, tuple(self._constants[name] for name in names)
