"""From embeddings to a `Batch`: which rows are told from which keys, checked and ready for either engine."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from mlcpc.distributed import Group
from mlcpc.pairs import LOG2E, Pairs, Watch
from mlcpc.scores import check_float, check_same_device, logsumexp, widen
from mlcpc.streaming import row_lse

__all__ = ["Batch", "Each", "Engine", "Indexed", "Layout", "Shared", "assemble", "embeddings"]

Layout = Literal["one-way", "symmetric", "two-view"]
Engine = Literal["tiled", "dense"]
_LAYOUTS, _ENGINES = get_args(Layout), get_args(Engine)  # older compilers cannot look into a type


@dataclass(frozen=True, eq=False)
class Shared:
    """Negatives (N, d) that every row is told from, but for what `pairs` leaves out: in-batch keys, a queue."""

    keys: Tensor
    pairs: Pairs

    def count(self, n: int) -> int | Tensor:
        """Negatives of each row."""
        if self.pairs.key_ids is None:
            return len(self.keys) - sum(row == 0 for row, _, _ in self.pairs.diagonals)
        return len(self.keys) - self.pairs.left_out(n, len(self.keys))

    def scores(self, q: Tensor) -> Tensor:
        """(n, N), −inf where left out; plain autograd."""
        return self.pairs.mask_(q @ self.keys.to(q.dtype).T, 0, 0, unit=1)

    def rows(self, q: Tensor, engine: Engine, watch: Watch | None) -> Tensor:
        """The log-sum of each row, (n,)."""
        if engine == "tiled":
            return row_lse(q, self.keys, self.pairs, watch)
        return _watched(self.scores(q), watch)


@dataclass(frozen=True, eq=False)
class Indexed:
    """A bank (N, d) of which row i sees the keys indices[i], (n, k)."""

    keys: Tensor
    pairs: Pairs
    indices: Tensor

    def count(self, n: int) -> int | Tensor:
        """Negatives of each row."""
        if self.pairs.key_ids is None or self.pairs.query_ids is None:
            return self.indices.shape[1]
        return (self.pairs.key_ids[self.indices] != self.pairs.query_ids[:, None]).sum(1)

    def rows(self, q: Tensor, engine: Engine, watch: Watch | None) -> Tensor:
        """The log-sum of each row, (n,)."""
        if engine == "tiled":
            if self.keys.requires_grad:
                raise ValueError(
                    'the bank needs a gradient, which only engine="dense" gives: write that, or bank.detach()'
                )
            return row_lse(q, self.keys, self.pairs, watch, self.indices)
        ids = None if self.pairs.key_ids is None else self.pairs.key_ids[self.indices]
        return Each(self.keys[self.indices], self.pairs.query_ids, ids).rows(q, engine, watch)


@dataclass(frozen=True, eq=False)
class Each:
    """Negatives (n, k, d) of each row's own; the memory is in them, so there is nothing to tile."""

    keys: Tensor
    query_ids: Tensor | None
    key_ids: Tensor | None

    def count(self, n: int) -> int | Tensor:
        """Negatives of each row."""
        return self.keys.shape[1] if self.key_ids is None else (self.key_ids != self._own_ids()).sum(1)

    def rows(self, q: Tensor, engine: Engine, watch: Watch | None) -> Tensor:
        """The log-sum of each row, (n,)."""
        s = torch.einsum("nd,nkd->nk", q, self.keys.to(q.dtype))
        if self.key_ids is not None:
            s = s.masked_fill(self.key_ids == self._own_ids(), -torch.inf)
        return _watched(s, watch)

    def _own_ids(self) -> Tensor:
        assert self.query_ids is not None  # `assemble` refuses ids of one side alone
        return self.query_ids[:, None]


Part = Shared | Indexed | Each


@dataclass(frozen=True, eq=False)
class Batch:
    """n rows, scaled queries (n, d) and the keys (n, d) they belong to, and where their negatives come from.

    `trained` are the keys that need a gradient; `others` are constants, or need none of the tiled engine's care.
    """

    q: Tensor
    partners: Tensor
    trained: Shared | None
    others: tuple[Part, ...]
    m: int | Tensor
    ranks: Group | None

    @cached_property
    def pos(self) -> Tensor:
        """The positives' scores, (n,), in float32 or float64 whatever the products use."""
        scores: Tensor = torch.linalg.vecdot(self.q, self.partners)
        return scores

    @property
    def n(self) -> int:
        """Positives of the global batch."""
        return len(self.q) if self.ranks is None else self.ranks.n

    @property
    def mean_m(self) -> float:
        """Candidates per row, averaged where rows differ."""
        return float(self.m.double().mean()) if isinstance(self.m, Tensor) else float(self.m)


def assemble(
    queries: Tensor,
    keys: Tensor,
    negatives: Tensor | None,
    *,
    temperature: float | Tensor,
    normalize: bool,
    layout: Layout,
    in_batch: bool | None,
    ids: Tensor | None,
    negative_ids: Tensor | None,
    indices: Tensor | None,
    group: Any,
) -> Batch:
    """Check everything, scale the queries, gather the keys of all ranks, and count the candidates."""
    q, k, extra, dtype = embeddings(queries, keys, negatives, normalize)
    n = len(q)
    for name, given in (("ids", ids), ("negative_ids", negative_ids), ("indices", indices)):
        check_integers(name, given, q.device)
    if ids is not None and ids.shape != (n,):
        raise ValueError(f"ids have shape {tuple(ids.shape)} but must be ({n},): one for each pair")
    _check_sources(layout, extra, in_batch, indices, negative_ids)
    partners, diagonals = k, [(0, n, 0)]
    if layout == "two-view":
        q, partners = torch.cat([q, k]), torch.cat([k, q])
        k, ids = q, None if ids is None else torch.cat([ids, ids])
        diagonals = [(0, 2 * n, 0), (0, n, n), (n, 2 * n, 0)]
    ranks = None if group is None else Group(group, len(q), q.device)
    scale = 1 / temperature
    plain = Pairs(bound=scale if normalize and isinstance(scale, float) else None, dtype=dtype)
    parts: list[Part] = []
    if extra is None or in_batch:
        parts.append(_in_batch(k, ids, diagonals, plain, ranks))
    if extra is not None:
        parts.append(_given(extra, ids, negative_ids, indices, plain, len(q), ranks))
    trained, others = _split(parts, ids)
    m = _candidates(parts, len(q))
    scaled = q if isinstance(scale, float) and scale == 1 else q * scale  # a product by 1 still takes memory
    return Batch(scaled, partners, trained, tuple(others), m, ranks)


def embeddings(
    queries: Tensor, keys: Tensor | None, negatives: Tensor | None, normalize: bool
) -> tuple[Tensor, Tensor, Tensor | None, torch.dtype]:
    """Checked, of unit length if asked, in float32 or float64 (constant negatives may stay); the products' format."""
    given = {"queries": queries, "keys": keys, "negatives": negatives}
    present = {name: x for name, x in given.items() if x is not None}
    for name, x in present.items():
        check_float(name, x)
        check_finite(name, x)
    check_same_device(**present)
    if queries.ndim != 2 or (keys is not None and queries.shape != keys.shape):
        other = "" if keys is None else f" and keys {tuple(keys.shape)}"
        raise ValueError(
            f"queries have shape {tuple(queries.shape)}{other}: both must be (n, d), "
            "row i of one belonging to row i of the other"
        )
    if negatives is not None and (negatives.ndim < 2 or negatives.shape[-1] != queries.shape[1]):
        raise ValueError(
            f"negatives have shape {tuple(negatives.shape)} but must end in the queries' dimension {queries.shape[1]}"
        )
    if len(queries) == 0:
        raise ValueError("the batch is empty (n = 0): give at least one pair")
    device = queries.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else queries.dtype
    if torch.float64 in {x.dtype for x in present.values()}:
        dtype = torch.float64
    if dtype == torch.float64:
        wide = {name: x.double() for name, x in present.items()}
    else:  # a long queue of constants stays as it is: widening it would take as long as the loss
        queue = negatives is not None and not negatives.requires_grad and not normalize
        wide = {name: x if queue and name == "negatives" else widen(x) for name, x in present.items()}
    if normalize:
        wide = {name: F.normalize(x, dim=-1) for name, x in wide.items()}
    return wide["queries"], wide.get("keys", wide["queries"]), wide.get("negatives"), dtype


def check_finite(name: str, x: Tensor) -> None:
    """No NaN, no infinity. Left out on a GPU: looking would stall its queue."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or math.isfinite(x.detach().sum().item()):
        return
    bad = ~x.detach().isfinite()
    if bad.any():  # a sum may overflow where no entry did
        row = int(bad.reshape(len(x), -1).any(1).nonzero()[0])
        raise ValueError(f"row {row} of {name} is not finite (nan or infinity): look for it in the encoder")


def check_integers(name: str, x: Tensor | None, device: torch.device | None = None) -> None:
    """Ids, labels and indices are integers, on the embeddings' device."""
    if x is None:
        return
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} is a {type(x).__name__} but must be a tensor: write torch.as_tensor({name})")
    if x.dtype.is_floating_point or x.dtype == torch.bool:
        raise TypeError(f"{name} is a tensor of {x.dtype} but must hold integers: write {name}.long()")
    if device is not None and x.device != device:
        raise ValueError(
            f"{name} is on {x.device} but the embeddings are on {device}: write {name}.to({str(device)!r})"
        )


def check_choices(layout: str, engine: str) -> None:
    """One of the known layouts and engines."""
    if layout not in _LAYOUTS:
        raise ValueError(f"layout is {layout!r}, which is not known: write 'one-way', 'symmetric' or 'two-view'")
    if engine not in _ENGINES:
        raise ValueError(f"engine is {engine!r}, which is not known: write 'tiled' or 'dense'")


def _check_sources(
    layout: str, extra: Tensor | None, in_batch: bool | None, indices: Tensor | None, extra_ids: Tensor | None
) -> None:
    if layout == "symmetric" and extra is not None:
        raise ValueError('negatives have no partners to be told from: with negatives, write layout="one-way"')
    if extra is None and in_batch is False:
        raise ValueError("in_batch is False but there are no negatives: give some, or leave in_batch out")
    if extra is None and indices is not None:
        raise ValueError("indices are given but there is no bank: give the bank (N, d) as negatives")
    if extra is None and extra_ids is not None:
        raise ValueError("negative_ids are given but there are no negatives: for those of the batch write ids alone")


def _in_batch(
    k: Tensor, ids: Tensor | None, diagonals: list[tuple[int, int, int]], plain: Pairs, ranks: Group | None
) -> Shared:
    key_ids, offset = ids, 0
    if ranks is not None:
        k, offset = ranks.gather(k), ranks.offset
        key_ids = None if ids is None else ranks.all_rows(ids)
    moved = tuple((row, end, column + offset) for row, end, column in diagonals)
    return Shared(k, replace(plain, diagonals=moved, query_ids=ids, key_ids=key_ids))


def _given(
    extra: Tensor,
    ids: Tensor | None,
    extra_ids: Tensor | None,
    indices: Tensor | None,
    plain: Pairs,
    n: int,
    ranks: Group | None,
) -> Part:
    expected = tuple(extra.shape[:-1])
    if extra.ndim not in (2, 3) or (extra.ndim == 3 and (len(extra) != n or indices is not None)):
        raise ValueError(
            f"negatives have shape {tuple(extra.shape)}: write (k, d) to share them, ({n}, k, d) for k to each query, "
            "or (N, d) with indices for a bank"
        )
    if 0 in expected:
        raise ValueError(f"negatives have shape {tuple(extra.shape)}, so there are none: fill a queue before using it")
    if extra_ids is not None and (ids is None or extra_ids.shape != expected):
        why = "ids of the pairs are missing" if ids is None else f"they must be {expected}, one for each negative"
        raise ValueError(f"negative_ids have shape {tuple(extra_ids.shape)} but {why}")
    if extra.ndim == 3:
        return Each(extra, ids, extra_ids)
    if ranks is not None and extra.requires_grad:  # a rank's own, with gradient: like keys, all ranks see all of them
        share = Group(ranks.group, len(extra), extra.device)
        extra, extra_ids = share.gather(extra), None if extra_ids is None else share.all_rows(extra_ids)
    pairs = replace(plain, query_ids=None if extra_ids is None else ids, key_ids=extra_ids)
    if indices is None:
        return Shared(extra, pairs)
    if indices.ndim != 2 or len(indices) != n or indices.shape[1] == 0:
        raise ValueError(f"indices have shape {tuple(indices.shape)} but must be ({n}, k): k bank rows for each query")
    if indices.device.type == "cpu" and not 0 <= int(indices.min()) <= int(indices.max()) < len(extra):
        wrong = indices[(indices < 0) | (indices >= len(extra))][0].item()
        raise ValueError(f"indices hold {wrong} but the bank has rows 0 to {len(extra) - 1}")
    return Indexed(extra, pairs, indices.long())


def _split(parts: list[Part], ids: Tensor | None) -> tuple[Shared | None, list[Part]]:
    """All shared keys that need a gradient as one part, and the rest."""
    trained = [part for part in parts if isinstance(part, Shared) and part.keys.requires_grad]
    others = [part for part in parts if part not in trained]
    if len(trained) < 2:
        return (trained[0] if trained else None), others
    pairs = trained[0].pairs
    if ids is not None:  # keys without ids get one that no query has
        strange = int(ids.min()) - 1
        all_ids = [
            part.pairs.key_ids if part.pairs.key_ids is not None else ids.new_full((len(part.keys),), strange)
            for part in trained
        ]
        pairs = replace(pairs, query_ids=ids, key_ids=torch.cat(all_ids))
    return Shared(torch.cat([part.keys for part in trained]), pairs), others


def _candidates(parts: list[Part], n: int) -> int | Tensor:
    """m, and an error where a row is left without a negative."""
    counts = [part.count(n) for part in parts]
    total = sum(counts)
    fewest = int(total.min()) if isinstance(total, Tensor) else total
    if fewest < 1:
        row = int(total.argmin()) if isinstance(total, Tensor) else 0
        raise ValueError(
            f"query {row} of {n} has no negative to be told from: give a larger batch, more negatives, or other ids"
        )
    return total + 1


def _watched(s: Tensor, watch: Watch | None) -> Tensor:
    """Row log-sums of dense scores."""
    if watch is not None:
        watch.see(s.detach() * LOG2E, 0)
    return logsumexp(s)
