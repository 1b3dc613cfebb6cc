"""Training: Adam on all critics at once, each kept at its own best step on validation rows."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mlcpc.bounds import alpha_min
from mlcpc.mi.by_hand import estimates_and_gradients
from mlcpc.mi.held_out import read_bound, stream_cut
from mlcpc.mi.methods import objective
from mlcpc.mi.networks import Critic
from mlcpc.mi.prepare import Recipe, Split, Views, embed_rows

__all__ = ["keep", "train"]

Tick = Callable[[float], None]
_JOINT_RATE = 1e-2
_GROUP = 8
"""rows that a joint critic pairs with each other"""


def train(
    critic: Critic, views: Views, split: Split, recipe: Recipe, generator: torch.Generator, tick: Tick
) -> list[float]:
    """Adam with a cosine schedule; each critic ends at its own best validation step. Gives the best values."""
    rate = _JOINT_RATE if critic.residual is not None else recipe.learning_rate
    optimizer = torch.optim.AdamW(_groups(critic, recipe, rate), fused=True)
    top_rates = [float(group["lr"]) for group in optimizer.param_groups]
    runs, rows = split.train.shape
    batch = min(recipe.batch, rows // 2)
    if critic.residual is not None:
        batch -= batch % min(batch, _GROUP)
    best, kept = [-math.inf] * runs, {name: value.clone() for name, value in critic.state_dict().items()}
    order, at, stale = torch.zeros(0), rows, 0
    for step in range(recipe.steps + 1):
        if step % recipe.every == 0:
            values = _validate(critic, views, split, recipe.method)
            better = [r for r in range(runs) if values[r] > best[r] + 1e-4]
            stale = 0 if better else stale + 1
            for r in better:
                best[r] = values[r]
                _copy_run(critic, kept, r)
            if stale >= recipe.patience or step == recipe.steps:
                break
            tick(step / recipe.steps)
        if at + batch > rows:
            order, at = torch.rand(runs, rows, generator=generator).argsort(1), 0
        chosen = split.train.gather(1, order[:, at : at + batch])
        at += batch
        scale = 0.5 * (1 + math.cos(math.pi * step / recipe.steps)) * min(1.0, (step + 1) / 20)
        for group, top in zip(optimizer.param_groups, top_rates, strict=True):
            group["lr"] = scale * top
        optimizer.zero_grad()
        _backward(critic, *views(chosen), recipe.method)
        optimizer.step()
    critic.load_state_dict(kept)
    return best


def _groups(critic: Critic, recipe: Recipe, rate: float) -> list[dict[str, object]]:
    """The closed-form part moves slowly and does not decay; networks decay unless joint."""
    closed = [critic.w, critic.q, critic.x.directions, critic.y.directions]
    others = [p for p in critic.parameters() if all(p is not c for c in closed)]
    decay = 0.0 if critic.residual is not None else recipe.decay
    return [
        {"params": closed, "lr": rate / 10, "weight_decay": 0.0},
        {"params": others, "lr": rate, "weight_decay": decay},
    ]


@torch.no_grad()
def _copy_run(critic: Critic, kept: dict[str, Tensor], run: int) -> None:
    for name, value in critic.state_dict().items():  # what an encoder's norms have counted belongs to its weights
        if ".encoders." not in name:
            kept[name][run] = value[run]
        elif f".encoders.{run}." in name:
            kept[name].copy_(value)


@torch.no_grad()
def keep(critic: Critic, runs: list[int]) -> None:
    """Drop all critics but these."""
    for parameter in critic.parameters():
        parameter.data = parameter.data[runs].clone()
        parameter.grad = None
    critic.rho = critic.rho[runs]
    for side in (critic.x, critic.y):
        side.centre, side.spread = side.centre[runs], side.spread[runs]


def _backward(critic: Critic, x: Tensor, y: Tensor, method: str) -> None:
    """Gradients on one batch. A row's negatives are all others of the batch, or of its group for a joint critic."""
    runs, n = x.shape[:2]
    joint = critic.residual is not None
    scores = critic.groups(critic.x.columns(x), critic.y.columns(y), min(n, _GROUP) if joint else n)
    if not joint and method in ("ml_cpc", "cpc"):
        alpha = scores.new_full((runs,), 1.0 if method == "cpc" else alpha_min(n, n))
        is_cpc = torch.full((runs,), method == "cpc")
        _, gradient = estimates_and_gradients(scores.detach()[:, 0], alpha, is_cpc)
        torch.autograd.backward(scores, gradient[:, None])
        return
    size = scores.shape[-1]
    others = scores.flatten(2)[..., 1:].view(runs, -1, size - 1, size + 1)[..., :-1].reshape(runs, n, size - 1)
    pos = scores.diagonal(dim1=2, dim2=3).flatten(1)
    torch.autograd.backward(-objective(method, pos, others.transpose(1, 2)).sum())


@torch.no_grad()
def _validate(critic: Critic, views: Views, split: Split, method: str) -> list[float]:
    critic.eval()
    rows = split.validation
    found = []
    if critic.residual is not None:
        x, y = views(rows)
        step = max(1, rows.shape[1] ** 2 // 8000)
        scores = critic.pairs(x, y, [0, *range(1, rows.shape[1], step)])
        found = objective(method, scores[:, 0], scores[:, 1:]).tolist()
    else:
        e = embed_rows(critic, views, rows)
        method = {"smile": "dv", "js": "nwj"}.get(method, method)
        for r in range(len(rows)):
            held, _ = stream_cut(e.rows(r), split.ceiling)
            found.append(read_bound(held, method, split.alpha(held.m))[0])
    critic.train()
    return found
