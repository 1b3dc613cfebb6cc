"""What every pass over tiles of scores shares: shapes, formats, and sums that neither overflow nor lose small terms.

Where a bound on the scores leaves room (`fits`), nothing is subtracted before exp2; otherwise a running maximum is.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mlcpc.pairs import LOG2E, Pairs

__all__ = [
    "Prepared",
    "add_product",
    "apply",
    "bounded",
    "exp2",
    "finite",
    "fits",
    "only_once",
    "raise_top",
    "strip_rows",
    "tile_shape",
    "weights_dtype",
]


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """function.apply; eagerly where a model is being compiled, whose graph would get every turn of the tiles' loops."""
    run: Any = function.apply
    if torch.compiler.is_compiling():
        run = torch.compiler.disable(run)  # type: ignore[no-untyped-call]
    result: Tensor = run(*arguments)
    return result


def only_once() -> None:
    """The tiles are gone by the backward pass, so there is nothing to differentiate a second time."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the tiled engine gives first derivatives only, and this is a double backward (create_graph=True): "
            'write engine="dense"'
        )


def bounded(q: Tensor, k: Tensor, pairs: Pairs) -> Pairs:
    """With a bound on the scores; fp16 products that would overflow are made in float32."""
    if pairs.bound is None:
        largest = q.norm(dim=1).max().double() * k.norm(dim=1).max()  # Cauchy–Schwarz
        pairs = replace(pairs, bound=1.01 * float(largest))  # half-precision norms are rounded
    assert pairs.bound is not None
    if pairs.dtype == torch.float16 and pairs.bound * LOG2E > 3e4:
        pairs = replace(pairs, dtype=torch.float32)
    return pairs


def fits(q: Tensor, k: Tensor, pairs: Pairs) -> bool:
    """Whether exp2 of every score, and the sum of all, stays inside the format's range with room to spare."""
    assert pairs.bound is not None
    bits = pairs.bound * LOG2E + math.log2(q.shape[0] * k.shape[0] + 1)
    if pairs.equal != -math.inf:
        bits += abs(pairs.equal) * LOG2E
    return bits < (1000 if q.dtype == torch.float64 else 110)


def tile_shape(n: int, keys: int, dtype: torch.dtype, device: torch.device) -> tuple[int, int]:
    """Rows and columns of a tile: 2 MiB stays in a CPU's cache; a GPU wants enough work to fill it."""
    entries = (2**21 if device.type == "cpu" else 2**27) // dtype.itemsize
    rows = min(n, 512 if dtype.itemsize >= 4 else 1024) if device.type == "cpu" else min(n, 8192)
    return rows, max(1, min(keys, entries // rows))


def strip_rows(keys: int, dtype: torch.dtype, device: torch.device) -> int:
    """Rows of a strip over all keys: 8 MiB, but never so few that the products starve."""
    entries = (2**23 if device.type == "cpu" else 2**28) // dtype.itemsize
    return max(64, min(512, entries // keys)) if device.type == "cpu" else max(128, entries // keys)


def weights_dtype(dtype: torch.dtype) -> torch.dtype:
    """fp16 has too little range for the weights of the gradient products; bf16 has enough."""
    return torch.bfloat16 if dtype == torch.float16 else dtype


def exp2(s: Tensor, shift: Tensor | float | None) -> Tensor:
    """2^(s − shift), in place where the format has the range."""
    if s.dtype == torch.float16:
        s = s.float()
    if shift is not None:
        s = s.sub_(shift)
    return s.exp2_()


def add_product(into: Tensor, a: Tensor, b: Tensor) -> None:
    """into += a @ b, accumulated in `into`'s format."""
    if into.dtype == a.dtype == b.dtype:
        into.addmm_(a, b)
    else:
        into += a.to(b.dtype) @ b


class Prepared:
    """The operands of all products in their format: queries in bits, keys, and both as the gradients want them."""

    def __init__(self, q: Tensor, k: Tensor, pairs: Pairs) -> None:
        self.pairs, self.q = pairs, q
        self.k = k.to(pairs.dtype)
        weights = weights_dtype(pairs.dtype)
        self.k_weights = self.k if weights == pairs.dtype else k.to(weights)
        self.weights = weights

    def rows(self, i: int, end: int) -> tuple[Tensor, Tensor]:
        """Queries i … end: for the logits, in bits; and for the keys' gradient."""
        block = self.q[i:end]
        return (block * LOG2E).to(self.pairs.dtype), block.to(self.weights)

    def scores(self, rows: Tensor, i: int, j: int, end: int, buffer: Tensor) -> Tensor:
        """The masked tile of scores in bits."""
        s = buffer[: len(rows) * (end - j)].view(len(rows), end - j)
        torch.mm(rows, self.k[j:end].T, out=s)
        return self.pairs.mask_(s, i, j)


def raise_top(s: Tensor, top: Tensor, total: Tensor, mean: Tensor | None) -> None:
    """Move each row's running maximum, and what was summed under the old one; all in place."""
    new = torch.maximum(top, s.amax(1, keepdim=True).to(top))
    factor = torch.where(top == new, torch.ones_like(top), (top - new).exp2_())
    top.copy_(new)
    total.mul_(factor)
    if mean is not None:
        mean.mul_(factor)


def finite(top: Tensor) -> Tensor:
    """A maximum to subtract: 0 for a row without any key."""
    return top.masked_fill(top == -math.inf, 0.0)
