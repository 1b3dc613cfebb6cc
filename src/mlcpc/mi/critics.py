"""Critics log g(x, y), several at once: R critics with weights of their own see one batch as one batched program."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

__all__ = ["Separable"]


class _Mlp(nn.Module):
    """R multi-layer perceptrons, (n, in) → (R, n, out), with torch.nn.Linear's initial law."""

    def __init__(self, runs: int, sizes: list[int], generator: torch.Generator) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            bound = 1 / math.sqrt(fan_in)
            for target, shape in ((self.weights, (runs, fan_in, fan_out)), (self.biases, (runs, 1, fan_out))):
                target.append(nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound))

    def forward(self, x: Tensor) -> Tensor:
        h = x.expand(len(self.weights[0]), *x.shape)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h.relu() if layer else h, weight)
        return h


class Separable(nn.Module):
    """log g(x, y) = ⟨f(x), h(y)⟩ for every x and y of a batch: (n, d), (n, d) → (R, n, n)."""

    def __init__(self, runs: int, dim: int, hidden: int, embedding: int, generator: torch.Generator) -> None:
        super().__init__()
        sizes = [dim, hidden, hidden, embedding]
        self.f, self.h = _Mlp(runs, sizes, generator), _Mlp(runs, sizes, generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.bmm(self.f(x), self.h(y).transpose(1, 2))
