"""`ContrastiveLoss`: from embeddings to a number to minimise, with every source of negatives.

`batches.assemble` says which rows are told from which keys. Then one of two engines makes the numbers: the tiled one
(`streaming`) has value and gradients after one pass over tiles of logits, in O(tile) memory; the dense one is plain
autograd and so can be differentiated twice. Both are tested against each other and against loops.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.batches import Batch, Engine, Layout, Shared, assemble, check_choices
from mlcpc.bounds import check_alpha, is_lower_bound, normalise
from mlcpc.labels import multi_positive
from mlcpc.objectives import OBJECTIVES, log_odds, top
from mlcpc.pairs import Watch
from mlcpc.rowwise import both_ways, row_losses
from mlcpc.schedules import Alpha, Schedule, parse_alpha
from mlcpc.scores import Scores, check_float, logsumexp, widen
from mlcpc.square import square_loss
from mlcpc.streaming import total_lse

__all__ = ["ContrastiveLoss", "Details", "contrastive_loss"]


@dataclass(frozen=True)
class Details:
    """A loss and what a person wants to see beside it.

    loss        what to minimise, ceiling − estimate
    estimate    of the mutual information, in nats, on this batch
    ceiling     the most it could be, log(m/α)
    alpha       in use
    guaranteed  whether α lies in the range in which the estimate is, in expectation, a lower bound
    accuracy    share of positives that score above every negative of their row; None with labels
    joint       share of positives among the n best of all pairs; None with labels
    """

    loss: Tensor
    estimate: float
    ceiling: float
    alpha: float
    guaranteed: bool
    accuracy: float | None
    joint: float | None

    def __str__(self) -> str:
        return self.text()

    def text(self, bits: bool = False) -> str:
        """One line for a log."""
        unit, name = (math.log(2), "bits") if bits else (1.0, "nats")
        found = "" if self.accuracy is None else f", top-1 {self.accuracy:.1%}, joint {self.joint:.1%}"
        bound = "lower bound" if self.guaranteed else "no guarantee"
        return f"{self.estimate / unit:.3f} of {self.ceiling / unit:.3f} {name} (α = {self.alpha:g}, {bound}){found}"


def contrastive_loss(
    queries: Tensor,
    keys: Tensor | None = None,
    negatives: Tensor | None = None,
    *,
    objective: str = "ml_cpc",
    alpha: float = 1.0,
    temperature: float | Tensor = 0.07,
    normalize: bool = True,
    layout: Layout = "one-way",
    in_batch: bool | None = None,
    labels: Tensor | None = None,
    ids: Tensor | None = None,
    negative_ids: Tensor | None = None,
    indices: Tensor | None = None,
    engine: Engine = "tiled",
    group: Any = None,
    details: bool = False,
    stacklevel: int = 1,
) -> Any:
    """The loss of a batch of embeddings whose score is log g(x, y) = ⟨x, y⟩ / temperature.

    queries, keys   (n, d), row i of one belonging to row i of the other
    negatives       None: the other keys of the batch. (k, d): shared by all queries, such as a queue. (n, k, d): k for
                    each query. With `indices` (n, k): a bank (N, d) of which query i sees the rows indices[i]
    in_batch        True: with negatives, the other keys of the batch are negatives too
    layout          "one-way", queries → keys; "symmetric", both ways (CLIP); "two-view", every view against all others
                    (SimCLR), 2n × 2n without self-pairs
    labels          (n,) integers: every key with the query's label is a positive. Without `keys`, of one set
    ids             (n,) integers: a key with the query's id, other than its own, is no negative but left out;
                    negative_ids likewise for `negatives`: (k,), (n, k), or (N,) for a bank
    engine          "tiled": O(tile) memory, first derivatives; "dense": plain autograd
    group           torch.distributed process group over which the batch is spread (see mlcpc.distributed); negatives
                    with gradient are each rank's own and gathered, those without are the same on every rank
    details         return `Details` instead of the loss alone
    stacklevel      of GuaranteeWarning

    >>> x, queue = torch.eye(8, 16), torch.eye(16, 16)[8:]
    >>> str(contrastive_loss(x, x, queue, alpha=0.5, details=True))
    '2.890 of 2.890 nats (α = 0.5, lower bound), top-1 100.0%, joint 100.0%'
    """
    name = normalise(objective)
    check_choices(layout, engine)
    _check_numbers(alpha, temperature)
    check_float("queries", queries)
    if keys is not None:
        check_float("keys", keys)
    if labels is not None:
        other = {"negatives": negatives, "ids": ids, "negative_ids": negative_ids, "indices": indices}
        clash = [what for what, x in (other | {"in_batch": in_batch}).items() if x is not None]
        if clash:
            raise ValueError(
                f"labels do not go with {clash[0]}: they already say which pairs are positive and negative"
            )
        value, m, n = multi_positive(queries, keys, labels, name, alpha, temperature, normalize, layout, engine, group)
        check_alpha(alpha, m, n, name, stacklevel=stacklevel + 1)
        ceiling = math.log(m / alpha)
        return _details(value, ceiling, alpha, name, m, n, None, None) if details else value
    if keys is None:
        raise ValueError("keys are missing: give the (n, d) partners of the queries, or labels for a single set")
    plain = all(x is None for x in (negatives, ids, negative_ids, indices, in_batch, group)) and not details
    if plain and engine == "tiled" and (layout == "one-way" or (layout == "symmetric" and name == "ml_cpc")):
        small = _small_square(queries, keys, name, alpha, temperature, normalize, stacklevel + 1)
        if small is not None:
            return small
    batch = assemble(
        queries,
        keys,
        negatives,
        temperature=temperature,
        normalize=normalize,
        layout=layout,
        in_batch=in_batch,
        ids=ids,
        negative_ids=negative_ids,
        indices=indices,
        group=group,
    )
    check_alpha(alpha, batch.mean_m, batch.n, name, stacklevel=stacklevel + 1)
    with torch.autocast(queries.device.type, enabled=False):  # the batch knows its format; positives are not rounded
        watch = Watch.over(batch.pos, batch.ranks) if details else None
        value = _evaluate(batch, name, alpha, layout, engine, watch)
    if batch.ranks is not None:
        value = batch.ranks.for_ddp(value)
    if watch is None:
        return value
    rates = watch.accuracies(batch.pos, batch.ranks)
    ceiling = top(Scores(batch.pos, torch.zeros_like(batch.pos), batch.m), alpha, name, batch.ranks)
    return _details(value, ceiling, alpha, name, batch.mean_m, batch.n, *rates)


def _check_numbers(alpha: float, temperature: float | Tensor) -> None:
    if not isinstance(alpha, Real):
        raise TypeError(f"alpha is {alpha!r} but must be a number; schedules and strings are for ContrastiveLoss")
    if isinstance(temperature, Tensor):
        if temperature.numel() != 1:
            raise ValueError(f"temperature has shape {tuple(temperature.shape)} but must be one number for all pairs")
        if temperature.device.type != "cpu" or torch.compiler.is_compiling():
            return
        temperature = temperature.item()
    if not isinstance(temperature, Real) or not 0 < temperature < math.inf:
        raise ValueError(f"temperature is {temperature!r} but must be a positive number: write, say, 0.07")


def _details(
    loss: Tensor, ceiling: float, alpha: float, name: str, m: float, n: int, accuracy: float | None, joint: float | None
) -> Details:
    guaranteed = is_lower_bound(alpha, m, n, name)
    return Details(loss, ceiling - loss.item(), ceiling, alpha, guaranteed, accuracy, joint)


def _evaluate(batch: Batch, name: str, alpha: float, layout: Layout, engine: Engine, watch: Watch | None) -> Tensor:
    """ceiling − objective.

    Positives are scored before the tiles: so in the backward pass the tiles' gradients, held twice there, come first.
    """
    pos = batch.pos
    if layout == "symmetric" and name == "cpc":
        return _symmetric(batch, alpha, engine, watch)
    rest = [part.rows(batch.q, engine, watch) for part in batch.others]
    others = logsumexp(torch.stack(rest), 0) if len(rest) > 1 else rest[0] if rest else None
    if batch.trained is None or engine == "dense":
        lse = others if batch.trained is None else batch.trained.rows(batch.q, "dense", watch)
        if batch.trained is not None and others is not None:
            lse = torch.logaddexp(lse, others)  # type: ignore[arg-type]
        assert lse is not None  # assemble() gives every batch some negatives
        return OBJECTIVES[name](Scores(pos, lse, batch.m), alpha, batch.ranks)
    keys, pairs = batch.trained.keys, batch.trained.pairs
    if name == "cpc":
        total = row_losses(batch.q, keys, pos, _offset(batch, alpha), pairs, watch, others)
        return (total if batch.ranks is None else batch.ranks.sum(total)) / batch.n
    everything = total_lse(batch.q, keys, pairs, watch)
    if others is not None:
        everything = torch.logaddexp(everything, logsumexp(others, 0))
    each = (everything - math.log(len(pos))).expand(len(pos))  # J needs the sum only: any equal shares do
    return OBJECTIVES[name](Scores(pos, each, batch.m), alpha, batch.ranks)


def _small_square(
    q: Tensor, k: Tensor, name: str, alpha: float, temperature: float | Tensor, normalize: bool, stacklevel: int
) -> Tensor | None:
    """The loss of a small batch of plain in-batch pairs, in few kernels; None where it is not that simple.

    Small: where one matrix beats tiles (benchmarks/loss.py), a million logits on a CPU, 16 million (64 MB) on a GPU.

    Anything odd (shapes, values, an α out of place) is left to the general path, which explains it.
    """
    n = len(q) if q.ndim == 2 else 0
    alike = q.shape == k.shape and q.device == k.device and q.dtype == k.dtype and q.dtype.is_floating_point
    if (
        not alike
        or not 2 <= n <= (1024 if q.device.type == "cpu" else 4096)
        or not 0 < alpha < n
        or torch.is_autocast_enabled(q.device.type)
    ):
        return None
    dtype, scale = q.dtype, 1 / temperature
    if isinstance(scale, Tensor):  # learnt: autograd scales the queries
        q, k = (F.normalize(widen(x), dim=1) for x in (q, k)) if normalize else (widen(q), widen(k))
        q, scale, normalize = q * scale, 1.0, False
    value = square_loss(q, k, alpha, name == "ml_cpc", scale, normalize, dtype)
    looks = q.device.type == "cpu" and not torch.compiler.is_compiling()
    if value is None or (looks and not math.isfinite(value.item())):
        return None
    check_alpha(alpha, n, n, name, stacklevel=stacklevel + 1)
    return value


def _symmetric(batch: Batch, alpha: float, engine: Engine, watch: Watch | None) -> Tensor:
    """The mean of both directions' cross entropies."""
    part, ranks, offset = batch.trained or batch.others[0], batch.ranks, _offset(batch, alpha)
    assert isinstance(part, Shared)  # `assemble` takes no negatives with this layout
    if engine == "tiled":
        total = both_ways(batch.q, part.keys, batch.pos, (offset, offset), part.pairs, watch, ranks)
    else:
        start = 0 if ranks is None else ranks.offset
        back = Shared(batch.q if ranks is None else ranks.gather(batch.q), part.pairs)
        own_keys = part.keys[start : start + len(batch.pos)]
        lse = torch.stack([part.rows(batch.q, engine, watch), back.rows(own_keys, engine, None)])
        total = F.softplus(lse + offset - batch.pos, threshold=50).sum()
    return (total if ranks is None else ranks.sum(total)) / (2 * batch.n)


def _offset(batch: Batch, alpha: float) -> Tensor:
    offset = log_odds(batch.m, alpha)
    return batch.pos.new_full(batch.pos.shape, offset) if isinstance(offset, float) else offset.to(batch.pos)


class ContrastiveLoss(nn.Module):
    """ceiling − objective, of embeddings whose score is log g(x, y) = ⟨x, y⟩ / temperature.

    objective    "ml_cpc" (J_α, one question over the whole batch) or "cpc" (L_α; with α = 1 it is InfoNCE)
    alpha        a number, "0.05", or a schedule such as "10:0.1"; then set `loss.progress = step / total_steps`
    temperature  positive; with learn_temperature=True it is where a learnt one starts, which stays in [0.01, 1]

    The other settings, and what forward takes, are those of `contrastive_loss`. NaN and infinite embeddings raise on a
    CPU; on a GPU, where looking would stall the queue of kernels, they give a NaN loss.

    >>> loss = ContrastiveLoss()
    >>> queries, keys = torch.randn(8, 16, requires_grad=True), torch.randn(8, 16)
    >>> loss(queries, keys).backward()
    """

    def __init__(
        self,
        objective: str = "ml_cpc",
        alpha: Alpha = 1.0,
        temperature: float = 0.07,
        *,
        normalize: bool = True,
        layout: Layout = "one-way",
        in_batch: bool | None = None,
        learn_temperature: bool = False,
        engine: Engine = "tiled",
        group: Any = None,
    ) -> None:
        super().__init__()
        self.objective = normalise(objective)
        self.alpha = alpha
        check_choices(layout, engine)
        _check_numbers(1.0, temperature)
        if learn_temperature and not 0.01 <= temperature <= 1:
            raise ValueError(f"temperature is {temperature} but a learnt one stays in [0.01, 1]: start it inside")
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learn_temperature else None
        self.fixed_temperature = float(temperature)
        self.settings: dict[str, Any] = {
            "normalize": normalize,
            "layout": layout,
            "in_batch": in_batch,
            "engine": engine,
            "group": group,
        }
        #: training progress in [0, 1]; only a schedule needs it
        self.progress: float | None = None

    @property
    def alpha(self) -> Callable[[float], float]:
        """The schedule; assign a number, a string or a function."""
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: Alpha) -> None:
        self._alpha = parse_alpha(alpha)

    @property
    def temperature(self) -> float | Tensor:
        """Fixed, or learnt as a log-scale in [0, log 100], as CLIP does."""
        if self.log_scale is None:
            return self.fixed_temperature
        return torch.exp(-self.log_scale.clamp(0, math.log(100)))

    def forward(
        self,
        queries: Tensor,
        keys: Tensor | None = None,
        negatives: Tensor | None = None,
        *,
        labels: Tensor | None = None,
        ids: Tensor | None = None,
        negative_ids: Tensor | None = None,
        indices: Tensor | None = None,
        details: bool = False,
        temperature: float | Tensor | None = None,
    ) -> Any:
        """The loss (or `Details`) of (n, d) queries and their (n, d) keys; see `contrastive_loss`.

        `temperature` overrides the module's own, for models that learn it themselves.
        """
        own: float | Tensor = self.fixed_temperature
        if self.log_scale is not None:
            with torch.no_grad():  # the parameter itself: clamping its value alone would leave it no gradient to return
                self.log_scale.clamp_(0, math.log(100))
            own = torch.exp(-self.log_scale)  # not clamped again: since torch 2.15 that has no gradient at the ends
        return contrastive_loss(
            queries,
            keys,
            negatives,
            objective=self.objective,
            alpha=self.current_alpha(),
            temperature=own if temperature is None else temperature,
            labels=labels,
            ids=ids,
            negative_ids=negative_ids,
            indices=indices,
            details=details,
            stacklevel=4,  # past forward and torch's two call frames, to the user's line
            **self.settings,
        )

    def current_alpha(self) -> float:
        """α at `progress`."""
        if self.progress is not None:
            return self.alpha(self.progress)
        if isinstance(self.alpha, Schedule) and self.alpha.high == self.alpha.low:
            return self.alpha.high
        start, end = self.alpha(0.0), self.alpha(1.0)
        raise ValueError(
            f"alpha is a schedule from {start:g} to {end:g}: set loss.progress = step / total_steps before each call"
        )

    def extra_repr(self) -> str:
        chosen = ", ".join(f"{key}={value!r}" for key, value in self.settings.items() if value is not None)
        temperature = torch.as_tensor(self.temperature).item()
        return f"{self.objective}, alpha={self.alpha}, temperature={temperature:g}, {chosen}"
