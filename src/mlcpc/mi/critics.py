"""Critics log g(x, y), several at once: R critics with weights of their own see one batch as one batched program."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

__all__ = ["Joint", "Separable"]


def _initial(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) / math.sqrt(fan_in))


class _Mlp(nn.Module):
    """R multi-layer perceptrons, (n, in) → (R, n, out), with torch.nn.Linear's initial law."""

    def __init__(self, runs: int, sizes: list[int], generator: torch.Generator) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            self.weights.append(_initial((runs, fan_in, fan_out), fan_in, generator))
            self.biases.append(_initial((runs, 1, fan_out), fan_in, generator))

    def forward(self, x: Tensor) -> Tensor:
        h = x.expand(len(self.weights[0]), *x.shape)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h.relu() if layer else h, weight)
        return h


class Separable(nn.Module):
    """log g(x, y) = ⟨f(x), h(y)⟩ for every x and y of a batch: (n, d), (n, d) → (R, n, n)."""

    def __init__(
        self, runs: int, dim: int, hidden: int, embedding: int, generator: torch.Generator, layers: int = 2
    ) -> None:
        super().__init__()
        sizes = [dim, *[hidden] * layers, embedding]
        self.f, self.h = _Mlp(runs, sizes, generator), _Mlp(runs, sizes, generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.bmm(self.f(x), self.h(y).transpose(1, 2))


class Joint(nn.Module):
    """log g(x, y) = MLP([x, y]) for every x and y of a batch: (n, d), (n, d) → (R, n, n).

    The first layer is linear in [x, y], so it is x W_x + (y W_y + b) on n + n rows; only the second layer needs all
    n² of them. This is the plain way, for autograd in any precision; `mi.by_hand` is the fast one.
    """

    def __init__(self, runs: int, dim: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.of_x = _initial((runs, dim, hidden), 2 * dim, generator)
        self.of_y = _initial((runs, dim, hidden), 2 * dim, generator)
        self.bias1 = _initial((runs, 1, hidden), 2 * dim, generator)
        self.weight2 = _initial((runs, hidden, hidden), hidden, generator)
        self.bias2 = _initial((runs, 1, hidden), hidden, generator)
        self.weight3 = _initial((runs, hidden, 1), hidden, generator)
        self.bias3 = _initial((runs, 1, 1), hidden, generator)

    def first_layer(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The two halves (R, n, hidden), before they are added for each pair."""
        return torch.matmul(x, self.of_x), torch.matmul(y, self.of_y) + self.bias1

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = self.first_layer(x, y)
        h1 = (a[:, :, None] + b[:, None]).relu().flatten(1, 2)
        h2 = torch.baddbmm(self.bias2, h1, self.weight2).relu()
        return torch.baddbmm(self.bias3, h2, self.weight3).view(-1, len(x), len(y))
