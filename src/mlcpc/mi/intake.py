"""What people hand in (tensors, arrays, data frames, columns by name) as rows of numbers, or one clear line why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Rows", "intake", "pair"]

FEWEST = 50
_LEVELS = 64


@dataclass(frozen=True)
class Rows:
    """(n, d) numbers, the names of the columns they came from, and which rows had something missing."""

    values: Tensor
    names: tuple[str, ...]
    missing: Tensor


def pair(x: Any, y: Any, missing: str = "refuse") -> tuple[Tensor, Tensor, list[str]]:
    """x and y as (n, dx) and (n, dy) with the same usable rows, and what a reader should be warned of.

    >>> pair([1.0] * 60, list(range(60)))
    Traceback (most recent call last):
    ValueError: column 0 of x is constant (1): it can tell nothing. Leave it out
    """
    if missing not in ("refuse", "drop"):
        raise ValueError(f"missing is {missing!r}, which is not known: write 'refuse' or 'drop'")
    rows, warnings = (intake(x, "x"), intake(y, "y")), []
    counts = [len(side.values) for side in rows]
    if counts[0] != counts[1]:
        raise ValueError(f"x has {counts[0]} rows and y {counts[1]}: they must be pairs, row for row")
    gone = rows[0].missing | rows[1].missing
    if gone.any():
        if missing == "refuse":
            raise ValueError(
                f"{int(gone.sum())} of {len(gone)} rows have missing values (NaN): clean them, or write missing='drop'"
            )
        warnings.append(f"{int(gone.sum())} of {len(gone)} rows were dropped for missing values")
    if int((~gone).sum()) < FEWEST:
        raise ValueError(f"there are {int((~gone).sum())} usable rows, but an estimate needs {FEWEST} or more")
    values = [side.values[~gone] for side in rows]
    for side, v, name in zip(rows, values, "xy", strict=True):
        _check(v, side.names, name)
    if (copies := _copies(*values)) > 0.01:
        warnings.append(
            f"{copies:.0%} of the rows are copies of other rows: a copy in another fold makes held-out rows known. "
            "Remove them unless they are real"
        )
    return values[0], values[1], warnings


def intake(data: Any, name: str) -> Rows:
    """One side. A 1-D thing is one column; text and categories become one indicator column for each level."""
    if isinstance(data, Tensor):
        return _numbers(data, name)
    columns = _by_name(data)
    if columns is not None:
        if not columns:
            raise ValueError(f"{name} has no columns: give at least one")
        parts = [_column(values, f"{name}[{key!r}]") for key, values in columns.items()]
        names = [str(key) for key, (block, _) in zip(columns, parts, strict=True) for _ in range(block.shape[1])]
        gone = torch.stack([bad for _, bad in parts]).any(0)
        return Rows(torch.cat([block for block, _ in parts], 1), tuple(names), gone)
    if hasattr(data, "__array__") and getattr(data, "dtype", None) is not None and data.dtype.kind in "biufc":
        return _numbers(_from_array(data), name)
    if hasattr(data, "__array__") and getattr(data, "ndim", 1) == 2:
        return intake({i: data[:, i] for i in range(data.shape[1])}, name)
    if isinstance(data, Sequence) and len(data) and isinstance(data[0], Sequence) and not isinstance(data[0], str):
        return intake(dict(enumerate(zip(*data, strict=True))), name)
    block, gone = _column(data, name)
    return Rows(block, tuple(str(i) for i in range(block.shape[1])), gone)


def _by_name(data: Any) -> dict[Any, Any] | None:
    if isinstance(data, Mapping):
        return dict(data)
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        return {key: data[key] for key in data.columns}
    return None


def _numbers(data: Tensor, name: str) -> Rows:
    if data.is_complex():
        raise TypeError(f"{name} is complex: give its real and imaginary parts as two columns")
    if data.ndim == 0:
        raise ValueError(f"{name} is a single number: give one row for each pair")
    values = data.detach().cpu().flatten(1) if data.ndim > 1 else data.detach().cpu()[:, None]
    if values.shape[1] == 0:
        raise ValueError(f"{name} has no columns: give at least one")
    values = values if values.dtype in (torch.float32, torch.float64) else values.double()
    return Rows(values, tuple(map(str, range(values.shape[1]))), values.isnan().any(1))


def _from_array(data: Any) -> Tensor:
    import numpy as np  # only where arrays are handed in

    array = np.array(data, dtype=None if data.dtype in (np.float32, np.float64) else np.float64)
    return torch.from_numpy(array)


def _column(data: Any, name: str) -> tuple[Tensor, Tensor]:
    """One column of numbers or of words: (n, 1 or levels) and which entries are missing."""
    kind = getattr(getattr(data, "dtype", None), "kind", "O")
    if isinstance(data, Tensor) or (kind in "iuf" and hasattr(data, "__array__")):
        tensor = (
            data if isinstance(data, Tensor) else _from_array(data.to_numpy() if hasattr(data, "to_numpy") else data)
        )
        if tensor.ndim != 1:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)} but a column has one number a row")
        rows = _numbers(tensor, name)
        return rows.values, rows.missing
    entries = list(data)
    gone = [entry is None or entry != entry or entry == "" for entry in entries]
    words = [isinstance(entry, str | bool) for entry, bad in zip(entries, gone, strict=True) if not bad]
    if not any(words):
        plain = [float("nan") if bad else float(entry) for entry, bad in zip(entries, gone, strict=True)]
        return torch.tensor(plain, dtype=torch.float64)[:, None], torch.tensor(gone)
    if not all(words):
        first = next(e for e, bad in zip(entries, gone, strict=True) if not bad and isinstance(e, str | bool))
        raise ValueError(f"{name} has numbers and text, for example {first!r}: make it one or the other")
    levels = sorted({entry for entry, bad in zip(entries, gone, strict=True) if not bad})
    if len(levels) > _LEVELS:
        raise ValueError(
            f"{name} has text where numbers are expected ({len(levels)} different values, for example {levels[0]!r}; "
            f"up to {_LEVELS} would be taken as categories)"
        )
    place = {level: i for i, level in enumerate(levels)}
    codes = torch.tensor([0 if bad else place[entry] for entry, bad in zip(entries, gone, strict=True)])
    hot = torch.nn.functional.one_hot(codes, len(levels)).double()
    return hot[:, : 1 if len(levels) == 2 else None], torch.tensor(gone)


def _check(values: Tensor, names: tuple[str, ...], side: str) -> None:
    if values.isinf().any():
        count, column = int(values.isinf().sum()), names[int(values.isinf().any(0).nonzero()[0])]
        raise ValueError(f"{side} has {count} infinite values, the first in column {column}: remove or bound them")
    constant = (values == values[0]).all(0)
    if constant.any():
        at = int(constant.nonzero()[0])
        raise ValueError(
            f"column {names[at]} of {side} is constant ({float(values[0, at]):g}): it can tell nothing. Leave it out"
        )


def _copies(x: Tensor, y: Tensor) -> float:
    """The share of rows (of the first 200,000) that repeat another one, where rows of continuous data should not."""
    x, y = x[:200_000], y[:200_000]
    generator = torch.Generator().manual_seed(0)

    def marks(values: Tensor) -> Tensor:
        return values.double() @ torch.randn(values.shape[1], generator=generator, dtype=torch.float64)

    both = torch.stack([marks(x), marks(y)], 1)
    count = len(torch.unique(both, dim=0))
    continuous = all(len(torch.unique(side)) > len(both) / 4 for side in both.T)
    return 1 - count / len(both) if continuous else 0.0
