"""The estimator's critics: R of them, each with its own rows and weights, as one batched program.

    log g(x, y) = ⟨f(x), h(y)⟩ + a(x) + b(y)  +  Gaussian(x, y)  [ + residual(x, y) ]

Everything but the residual is separable: embeddings and unary terms, so all pairs cost one matrix product.
"""

import copy
import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (torch's own habit)

from mlcpc.mi.features import Gaussian, modulated, radial

__all__ = ["Critic", "Embedded", "Mlp", "Side"]


@cache
def narrow_is_fast() -> bool:
    """Whether this CPU has products of bfloat16, four times as fast as those of float32."""
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # torch ≥ 2.6
    return asked is not None and bool(asked())


class Embedded(NamedTuple):
    """What a separable critic needs of each row: scores are left @ right.T + from_x[:, None] + from_y[None]."""

    left: Tensor
    from_x: Tensor
    right: Tensor
    from_y: Tensor

    def rows(self, run: int) -> "Embedded":
        """One critic of the batch."""
        return Embedded(*(part[run] for part in self))

    def pairs(self, shift: int = 0) -> Tensor:
        """Scores of row i of x with row i + shift of y, (R, n)."""
        right, from_y = self.right.roll(-shift, -2), self.from_y.roll(-shift, -1)
        return (self.left * right).sum(-1) + self.from_x + from_y


class Mlp(nn.Module):
    """R multi-layer perceptrons, (R, n, in) → (R, n, out), with uniform weights of unit gain."""

    def __init__(self, runs: int, sizes: list[int], generator: torch.Generator, last: float, smooth: bool) -> None:
        super().__init__()
        self.act = F.silu if smooth else F.relu
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            bound = math.sqrt(3 / fan_in) * (last if layer == len(sizes) - 2 else 1.0)
            self.weights.append(nn.Parameter((torch.rand(runs, fan_in, fan_out, generator=generator) * 2 - 1) * bound))
            self.biases.append(nn.Parameter(torch.zeros(runs, 1, fan_out)))
        if not smooth:  # kinks away from the origin
            self.biases[0].data.uniform_(-1.5, 1.5, generator=generator)

    def forward(self, h: Tensor) -> Tensor:
        return self.rest(torch.baddbmm(self.biases[0], h, self.weights[0]))

    def rest(self, h: Tensor) -> Tensor:
        """All layers after the first, whose output is h: nearly all of the work, in bfloat16 where that is fast."""
        dtype = h.dtype
        narrow = torch.bfloat16 if dtype == torch.float32 and narrow_is_fast() else dtype
        h = h.to(narrow)
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            h = torch.baddbmm(bias.to(narrow), self.act(h), weight.to(narrow))
        return h.to(dtype)


class Side(nn.Module):
    """One side: rows → (Gaussian part, embedding, unary). `encoder` turns rows of any shape into columns first."""

    centre: Tensor
    spread: Tensor

    def __init__(self, runs: int, dim: int, level: int, directions: int, encoder: nn.Module | None) -> None:
        super().__init__()
        self.level = level
        self.encoders = nn.ModuleList(copy.deepcopy(encoder) for _ in range(runs)) if encoder is not None else None
        self.directions = nn.Parameter(torch.zeros(runs, dim * (level + 1), directions))
        self.register_buffer("centre", torch.ones(runs, 1, 1))
        self.register_buffer("spread", torch.ones(runs, 1, 1))
        self.net: Mlp | None = None

    def build(self, sizes: list[int], generator: torch.Generator, last: float) -> None:
        """The network of this side, on [columns, radius]."""
        runs, dim = len(self.directions), self.directions.shape[1] // (self.level + 1)
        self.net = Mlp(runs, [dim + 1, *sizes], generator, last, smooth=True)

    def columns(self, x: Tensor) -> Tensor:
        """(R, n, …) → (R, n, d)."""
        if self.encoders is None:
            return x
        encoded = torch.stack([encoder(rows) for encoder, rows in zip(self.encoders, x, strict=True)])
        return encoded.flatten(2) if encoded.ndim > 2 else encoded[..., None]

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        r = radial(z, self.centre, self.spread)
        u = torch.bmm(modulated(z, r, self.level), self.directions)
        return u, (z.new_zeros(*z.shape[:2], 1) if self.net is None else self.net(torch.cat([z, r], -1)))


class Critic(nn.Module):
    """R critics. `joint`: instead of separable networks, a residual on [x, y] that sees pairs one by one.

    It also sees what canonical variables leave of each other, (u − ρv)/√(1−ρ²) and (v − ρu)/√(1−ρ²): where y is x and
    a little noise, all there is to know lies in a narrow band, which these bring to unit width.
    """

    rho: Tensor

    def __init__(
        self,
        dims: tuple[int, int],
        starts: Sequence[tuple[Gaussian, Tensor, Tensor]],
        joint: bool,
        sizes: tuple[int, int],
        generator: torch.Generator,
        encoders: tuple[nn.Module | None, nn.Module | None] = (None, None),
    ) -> None:
        super().__init__()
        runs, (width, embedding) = len(starts), sizes
        level = max(start.level for start, _, _ in starts)
        count = max(1, *(len(start.w) for start, _, _ in starts))
        self.x, self.y = (Side(runs, d, level, count, e) for d, e in zip(dims, encoders, strict=True))
        self.w, self.q = (nn.Parameter(torch.zeros(runs, 1, count)) for _ in range(2))
        self.register_buffer("rho", torch.zeros(runs, 1, count))
        self.residual: Mlp | None = None
        if joint:
            self.residual = Mlp(runs, [sum(dims) + 2 * count, width, width, 1], generator, 0.0, smooth=False)
        else:
            self.x.build([width, width, embedding + 1], generator, 0.0)
            self.y.build([width, width, embedding + 1], generator, 1 / math.sqrt(embedding))
            assert self.y.net is not None
            self.y.net.weights[-1].data[:, :, -1] = 0
        for run, start in enumerate(starts):
            self._start(run, *start)

    @torch.no_grad()
    def _start(self, run: int, gaussian: Gaussian, radius_x: Tensor, radius_y: Tensor) -> None:
        """Run `run` begins as the closed-form critic; radius_* are the mean and spread of |z|²/d."""
        for side, matrix, radius in ((self.x, gaussian.a, radius_x), (self.y, gaussian.b, radius_y)):
            side.directions[run, : matrix.shape[0], : matrix.shape[1]] = matrix
            side.centre[run], side.spread[run] = radius[0], radius[1]
        self.w[run, 0, : len(gaussian.w)] = gaussian.w
        self.q[run, 0, : len(gaussian.q)] = gaussian.q
        self.rho[run, 0, : len(gaussian.q)] = gaussian.q / gaussian.w

    def embed(self, x: Tensor, y: Tensor) -> Embedded:
        """The separable part, for columns x (R, n, dx) and y (R, n, dy)."""
        return self._embedded(self.x(x), self.y(y))

    def _embedded(self, of_x: tuple[Tensor, Tensor], of_y: tuple[Tensor, Tensor]) -> Embedded:
        (u, f), (v, h) = of_x, of_y
        unary_x, unary_y = f[..., -1], h[..., -1]
        return Embedded(
            torch.cat([u * self.w, f[..., :-1]], -1),
            unary_x - (self.q * u.square()).sum(-1) / 2,
            torch.cat([v, h[..., :-1]], -1),
            unary_y - (self.q * v.square()).sum(-1) / 2,
        )

    def groups(self, x: Tensor, y: Tensor, size: int) -> Tensor:
        """Scores of all pairs within groups of `size` rows, (R, n/size, size, size): what training sees."""
        of_x, of_y = self.x(x), self.y(y)
        left, from_x, right, from_y = (part.reshape(-1, size, *part.shape[2:]) for part in self._embedded(of_x, of_y))
        scores = torch.baddbmm(from_x[:, :, None] + from_y[:, None], left, right.transpose(1, 2))
        scores = scores.view(len(x), -1, size, size)
        if self.residual is None:
            return scores
        a, b = (part.view(len(x), -1, size, part.shape[-1]) for part in self._first_layer(x, of_x[0], y, of_y[0]))
        extra = self.residual.rest((a[:, :, :, None] + b[:, :, None]).flatten(1, 3))
        return scores + extra.view(scores.shape)

    def pairs(self, x: Tensor, y: Tensor, shifts: Sequence[int]) -> Tensor:
        """Scores of row i of x with row i + s of y for each shift s, (R, len(shifts), n)."""
        of_x, of_y = self.x(x), self.y(y)
        base = self._embedded(of_x, of_y)
        scores = torch.stack([base.pairs(s) for s in shifts], 1)
        if self.residual is None:
            return scores
        a, b = self._first_layer(x, of_x[0], y, of_y[0])
        for k, s in enumerate(shifts):
            scores[:, k] += self.residual.rest(a + b.roll(-s, 1))[..., 0]
        return scores

    def _first_layer(self, x: Tensor, u: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Of the residual, on rows of x and on rows of y: being linear, it is the sum of both for a pair."""
        assert self.residual is not None
        of_x, of_y, left, right = self.residual.weights[0].split([x.shape[-1], y.shape[-1], *[u.shape[-1]] * 2], 1)
        rho = self.rho.transpose(1, 2)
        unit = (rho > 0) * (1 - rho.square()).rsqrt()
        left, right = unit * left, unit * right
        a = torch.baddbmm(torch.bmm(x, of_x), u, left - rho * right)
        b = torch.baddbmm(torch.baddbmm(self.residual.biases[0], y, of_y), v, right - rho * left)
        return a, b
