"""Random weights of a stack: normal, scaled so that a stream of unit variance stays so."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-5


@dataclass(frozen=True)
class Draw:
    """Seeded weights of one dtype on one device.

    Attributes:
        generator: Its device is where the weights are made.
        dtype: Of the weights.
    """

    generator: torch.Generator
    dtype: torch.dtype

    @classmethod
    def seeded(cls, seed: int, dtype: torch.dtype, device: torch.device) -> Draw:
        """Equal seeds draw equal weights on equal devices."""
        return cls(torch.Generator(device).manual_seed(seed), dtype)

    def matrix(self, rows: int, columns: int, *, copies: int | None = None) -> Tensor:
        """[rows, columns] (with `copies`, that many of them) with variance 1 / columns."""
        shape = (rows, columns) if copies is None else (copies, rows, columns)
        return self._empty(*shape).normal_(std=columns**-0.5, generator=self.generator)

    def embedding(self, rows: int, columns: int) -> Tensor:
        """[rows, columns] with variance 1."""
        return self._empty(rows, columns).normal_(generator=self.generator)

    def ones(self, *shape: int) -> Tensor:
        """Weights of a norm."""
        return self._empty(*shape).fill_(1.0)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """fp32, whatever the dtype of the other weights."""
        made = torch.empty(*shape, dtype=torch.float32, device=self.generator.device)
        return made.uniform_(low, high, generator=self.generator)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*shape, dtype=self.dtype, device=self.generator.device)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Product x [*, columns] @ weight [rows, columns]^T in x's dtype.

    The weight is converted when the dtypes differ, so that the same weights serve a run in fp64.
    """
    return F.linear(x, weight.to(x.dtype))


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Normalised x / rms(x) x weight over the last dimension."""
    return F.rms_norm(x, weight.shape, weight.to(x.dtype), EPS)


def by_head(x: Tensor, *heads: int) -> Tensor:
    """The last dimension of x cut into `heads` (and again, for several numbers) equal parts."""
    return x.reshape(*x.shape[:-1], *heads, -1)
