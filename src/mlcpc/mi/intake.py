"""Paired rows of numbers from what was handed in, and what a reader should be warned of."""

import math
from typing import Any

import torch
from torch import Tensor

from mlcpc.mi.columns import Rows, count, intake, raw, take

__all__ = ["FEWEST", "MAX_ROWS", "is_constant", "pair", "refuse_infinite", "same_length", "sampled"]

FEWEST = 50
MAX_ROWS = 100_000
"""rows that are used at most: a random sample of any more, so memory does not grow with n"""
_CHUNK = 100_000


def pair(
    x: Any,
    y: Any,
    missing: str = "refuse",
    most: int = MAX_ROWS,
    seed: int = 0,
    encoded: tuple[bool, bool] = (False, False),
) -> tuple[Rows, Rows, list[str]]:
    """x and y as (n, dx) and (n, dy) with the same usable rows, at most `most`, and warnings; as they are if `encoded`.

    Of more rows a chunk at a time is looked at for missing values, and only the sample is ever converted as a whole.

    >>> pair([1.0] * 60, list(range(60)))
    Traceback (most recent call last):
    ValueError: column 0 of x is constant (1): it can tell nothing. Leave it out
    """
    if missing not in ("refuse", "drop"):
        raise ValueError(f"missing is {missing!r}, which is not known: write 'refuse' or 'drop'")
    n = same_length(x, y)
    chunks = torch.split(torch.arange(n), _CHUNK) if n > most else [torch.arange(n)]

    def read(part: Tensor) -> list[Rows]:
        some = [take(side, part) if len(part) < n else side for side in (x, y)]
        return [(raw if as_is else intake)(side, name) for side, name, as_is in zip(some, "xy", encoded, strict=True)]

    gone = torch.cat([torch.stack([side.missing for side in read(part)]).any(0) for part in chunks])
    lost, warnings = int(gone.sum()), []
    if lost and missing == "refuse":
        raise ValueError(
            f"{lost} of {n} rows have missing values (NaN): clean them, or drop them with missing='drop' "
            "(--drop-missing on the command line)"
        )
    if lost:
        warnings.append(f"{lost} of {n} rows were dropped for missing values")
    usable = (~gone).nonzero()[:, 0]
    if len(usable) < FEWEST:
        raise ValueError(f"there are {len(usable)} usable rows, but an estimate needs {FEWEST} or more")
    if len(usable) > most:
        warnings.append(sampled(most, len(usable)))
        usable = usable[torch.randperm(len(usable), generator=torch.Generator().manual_seed(seed))[:most]]
    rows = read(usable)
    for side, name in zip(rows, "xy", strict=True):
        _check(side, name)
    if (copies := _copies(rows[0].values, rows[1].values)) > 0.01:
        warnings.append(
            f"{copies:.0%} of the rows are copies of other rows: a copy in another fold makes held-out rows known. "
            "Remove them unless they are real"
        )
    return rows[0], rows[1], warnings


def sampled(most: int, total: int) -> str:
    """The warning that not all rows were used."""
    return f"a random sample of {most} of {total} rows was used (max_rows)"


def same_length(x: Any, y: Any) -> int:
    """The number of rows of both."""
    counts = count(x, "x"), count(y, "y")
    if counts[0] != counts[1]:
        raise ValueError(f"x has {counts[0]} rows and y {counts[1]}: they must be pairs, row for row")
    return counts[0]


def _check(rows: Rows, side: str) -> None:
    """No infinite values, and no column without information (an encoder's rows have none)."""
    refuse_infinite(rows, side)
    if not rows.columns:
        return
    values, names = rows.values, rows.names
    constant = (values == values[0]).all(0)
    for column in rows.columns:
        if column.levels is not None and len(column.levels) == 1:
            raise ValueError(
                f"column {column.key} of {side} is constant ({column.levels[0]!r}): it can tell nothing. Leave it out"
            )
    if constant.any():
        at = int(constant.nonzero()[0])
        raise ValueError(
            f"column {names[at]} of {side} is constant ({float(values[0, at]):g}): it can tell nothing. Leave it out"
        )


def is_constant(values: Tensor) -> bool:
    """All rows are the same, missing ones aside."""
    known = values[~values.isnan().any(1)]
    return bool((known == known[:1]).all())


def refuse_infinite(rows: Rows, side: str) -> None:
    """Say how many there are, and where the first is."""
    if (infinite := rows.values.isinf()).any():
        where = f", the first in column {rows.names[int(infinite.any(0).nonzero()[0])]}" if rows.columns else ""
        raise ValueError(f"{side} has {int(infinite.sum())} infinite values{where}: remove or bound them")


def _copies(x: Tensor, y: Tensor) -> float:
    """The share of rows that repeat another one, where rows of continuous data should not."""
    generator = torch.Generator().manual_seed(0)

    def marks(values: Tensor) -> Tensor:
        values = values.flatten(1) if values.ndim > 1 else values[:, None]
        return values.double() @ torch.randn(values.shape[1], generator=generator, dtype=torch.float64)

    both = torch.stack([marks(x), marks(y)], 1)
    different = len(torch.unique(both @ both.new_tensor([1.0, math.pi])))
    continuous = all(len(torch.unique(side)) > len(both) / 4 for side in both.T)
    return 1 - different / len(both) if continuous else 0.0
