"""The staircase of Section 5.1: correlated Gaussians whose mutual information rises while critics keep training.

All methods of one critic train side by side on the same batches. An interrupted run goes on from its last checkpoint
and ends where it would have ended.
"""

import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlcpc.bounds import ceiling, is_lower_bound
from mlcpc.config import InputError
from mlcpc.mi.by_hand import JointPass, estimates_and_gradients
from mlcpc.mi.critics import Joint, Separable
from mlcpc.mi.tasks import correlated_gaussian, correlation
from mlcpc.runs import replacing

__all__ = ["PLATEAU", "Staircase", "climb"]

PLATEAU = 0.25
"""A plateau is the mean over this last share of a stair.

The paper does not say over what its own were taken. Where CPC is stationary (separable critic of two layers, 8 and 10
nats) it hardly matters: the mean difference from the published ones is 0.104 nats over the last quarter, 0.105 over the
last half or three quarters, 0.108 over the whole stair. So no window explains a difference there. Where an estimate
still climbs, as ML-CPC does, an earlier window gives less; the last quarter is nearest to what training reaches.
"""
_COST = {"separable": 1, "joint": 8}  # measured; only the progress bar needs it
_POINTS = 2000  # of a raw curve that go into result.json


@dataclass(frozen=True)
class Staircase:
    """The defaults are the paper's (Appendix C.2), with the separable critic alone."""

    methods: tuple[tuple[str, float], ...] = tuple(
        (objective, alpha) for objective in ("cpc", "ml_cpc") for alpha in (1.0, 0.1, 0.01, 0.001, 0.0001)
    )
    """(objective, alpha) of each run; all of them train side by side on the same batches"""
    critics: tuple[str, ...] = ("separable",)
    """separable: ⟨f(x), h(y)⟩; joint: MLP([x, y]). One after the other"""
    levels: tuple[float, ...] = (2, 4, 6, 8, 10)
    """nats of each stair"""
    steps: int = 4000
    """updates on each stair"""
    batch: int = 128
    """n = m: the other pairs of a batch are the negatives"""
    dim: int = 20
    hidden: int = 256
    embedding: int = 32
    separable_layers: int = 2
    """hidden layers of f and h. The paper says two; its plateaus agree with three (docs/log.md)"""
    learning_rate: float = 1e-3
    seed: int = 0
    precision: str = "float32"
    """of the joint critic's n² rows on a CPU: bfloat16 multiplies them with rounded weights, updates stay in float32"""
    neglect: float = 0.0
    """share of the joint critic's gradient, by softmax weight, whose pairs a CPU leaves out (see `mi.by_hand`)"""

    def __post_init__(self) -> None:
        for critic in self.critics:
            if critic not in _COST:
                raise ValueError(f"critic is {critic!r}, which is not known: write {' or '.join(map(repr, _COST))}")
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision is {self.precision!r}, which is not known: write one of 'float32', 'bfloat16'")
        if not 0 <= self.neglect < 0.1:
            raise ValueError(f"neglect is {self.neglect} but must lie in [0, 0.1): it is a share of the gradient")


class Ascent:
    """One critic on its way up: everything that an interrupted run needs to go on.

    It runs on the GPU if there is one, in float32 and with all pairs; batches are drawn on the CPU either way.
    """

    def __init__(self, config: Staircase, critic: str) -> None:
        self.config, runs = config, len(config.methods)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.generator = torch.Generator().manual_seed(config.seed)
        self.alpha = torch.tensor([alpha for _, alpha in config.methods], device=self.device)
        self.is_cpc = torch.tensor([objective == "cpc" for objective, _ in config.methods], device=self.device)
        self.critic: Joint | Separable
        self.gradients: Callable[[Tensor, Tensor], Tensor]
        if critic == "joint":
            joint = Joint(runs, config.dim, config.hidden, self.generator).to(self.device)
            self.critic, self.gradients = joint, self._by_autograd
            if self.device.type == "cpu":
                by_hand = JointPass(joint, config.batch, getattr(torch, config.precision), config.neglect)
                self.gradients = lambda x, y: by_hand(x, y, self.alpha, self.is_cpc)
        else:
            sizes = config.dim, config.hidden, config.embedding
            self.critic = Separable(runs, *sizes, self.generator, config.separable_layers).to(self.device)
            self.gradients = self._by_autograd
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=config.learning_rate, fused=True)
        self.step, self.seconds = 0, 0.0
        self.curves = torch.zeros(runs, config.steps * len(config.levels))

    def update(self) -> None:
        """One batch, one step of Adam for every method."""
        level = self.config.levels[self.step // self.config.steps]
        rho = correlation(level, self.config.dim)
        x, y = correlated_gaussian(self.config.batch, self.config.dim, rho, self.generator)
        self.curves[:, self.step] = self.gradients(x.to(self.device), y.to(self.device))
        self.optimizer.step()
        self.step += 1

    def _by_autograd(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        scores = self.critic(x, y)
        estimates, gradients = estimates_and_gradients(scores.detach(), self.alpha, self.is_cpc)
        scores.backward(gradients)
        return estimates

    def save(self, path: Path) -> None:
        """Whole or not at all."""
        state = {
            "critic": self.critic.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "curves": self.curves,
            "step": self.step,
            "seconds": self.seconds,
        }
        whole = io.BytesIO()  # torch's own writer says nothing of a full disk
        torch.save(state, whole)
        with replacing(path) as temporary:
            temporary.write_bytes(whole.getbuffer())

    def load(self, path: Path) -> None:
        """Go on from `save`, bit for bit."""
        try:
            state = torch.load(path, weights_only=True)
            self.critic.load_state_dict(state["critic"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.generator.set_state(state["generator"])
            self.curves, self.step, self.seconds = state["curves"], state["step"], state["seconds"]
        except Exception as error:
            raise InputError(f"{path} cannot be resumed ({type(error).__name__}): delete it to start over") from error


def climb(
    config: Staircase,
    tick: Callable[[float], None] = lambda done: None,
    folder: Path | None = None,
    every: int = 500,
) -> dict[str, Any]:
    """Train every method of every critic up the stairs: each stair's plateau, and curves to draw.

    `tick` is told the share that is done. With a `folder`, state and full curves are kept there in <critic>.pt, after
    every `every` updates, and a second call goes on from them.
    """
    methods: list[dict[str, Any]] = []
    seconds = {}
    total = sum(_COST[critic] for critic in config.critics)
    done = 0
    for critic in config.critics:
        share = _COST[critic]
        ascent = _finish(config, critic, lambda part: tick((done + share * part) / total), folder, every)  # noqa: B023
        done += share
        seconds[critic] = round(ascent.seconds, 1)
        for method, curve in zip(config.methods, ascent.curves, strict=True):
            methods.append({"critic": critic, **_summary(config, *method, curve)})
    return {"methods": methods, "seconds": round(sum(seconds.values()), 2), "seconds_by_critic": seconds}


def _finish(config: Staircase, critic: str, tick: Callable[[float], None], folder: Path | None, every: int) -> Ascent:
    ascent = Ascent(config, critic)
    path = folder / f"{critic}.pt" if folder else None
    if path and path.exists():
        ascent.load(path)
    total = ascent.curves.shape[1]
    before, started = ascent.seconds, time.perf_counter()
    while ascent.step < total:
        ascent.update()
        if path and (ascent.step % every == 0 or ascent.step == total):
            ascent.seconds = before + time.perf_counter() - started
            ascent.save(path)
        tick(ascent.step / total)
    ascent.seconds = before + time.perf_counter() - started
    return ascent


def _summary(config: Staircase, objective: str, alpha: float, curve: Tensor) -> dict[str, Any]:
    tail = max(2, round(config.steps * PLATEAU))
    stairs = curve.double().view(len(config.levels), config.steps)[:, -tail:]
    window = max(1, config.steps // 20)
    return {
        "objective": objective,
        "alpha": alpha,
        "ceiling": ceiling(config.batch, alpha),
        "lower_bound": is_lower_bound(alpha, config.batch, config.batch, objective),
        "plateau_mean": _rounded(stairs.mean(1)),
        "plateau_std": _rounded(stairs.std(1)),
        "highest": round(float(curve.max()), 4),
        "curve": _rounded(curve[:: math.ceil(len(curve) / _POINTS)]),
        "smooth": _rounded(curve.double().unfold(0, window, max(1, window // 2)).mean(1)),
        "window": window,
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]
