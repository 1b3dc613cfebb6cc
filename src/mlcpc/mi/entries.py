"""The entries of one column as numbers: numbers as they are, words and categories as one indicator for each level."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Column", "numbers", "of_column"]

_LEVELS = 64


@dataclass(frozen=True)
class Column:
    """A column as it was handed in: its key, and its levels where it holds words or categories."""

    key: Any
    levels: tuple[Any, ...] | None = None

    @property
    def width(self) -> int:
        """Columns of numbers that it becomes: an indicator for each level; of two levels one says all."""
        return 1 if self.levels is None or len(self.levels) <= 2 else len(self.levels)


def numbers(data: Any, name: str) -> tuple[Tensor, Tensor]:
    """An array of numbers as (n, …), and which rows have a NaN (or are masked)."""
    if isinstance(data, Tensor):
        values, masked = data.detach().cpu(), None
    else:
        import numpy as np  # only where arrays are handed in

        array = np.asanyarray(data)
        masked = np.ma.getmaskarray(array) if isinstance(array, np.ma.MaskedArray) else None
        values = torch.from_numpy(np.array(array, dtype=None if array.dtype in (np.float32, np.float64) else float))
    if values.ndim == 0:
        raise TypeError(f"{name} is a single number: give one row for each pair")
    values = values if values.dtype in (torch.float32, torch.float64) else values.double()
    if masked is not None:
        values[torch.from_numpy(masked)] = torch.nan
    values = values[:, None] if values.ndim == 1 else values
    return values, values.flatten(1).isnan().any(1)


def of_column(data: Any, name: str, like: Column | None) -> tuple[Tensor, Tensor, tuple[Any, ...] | None]:
    """One column of numbers or of words: (n, 1 or levels), which entries are missing, and the levels."""
    category = type(getattr(data, "dtype", None)).__name__ == "CategoricalDtype"
    if isinstance(data, Tensor) or (getattr(getattr(data, "dtype", None), "kind", "O") in "iuf" and not category):
        values, gone = numbers(data.to_numpy(dtype=float, na_value=float("nan")) if _is_nullable(data) else data, name)
        if values.shape[1:] != (1,):
            raise ValueError(f"{name} has shape {tuple(values.shape)} but a column has one number a row")
        if like is None or like.levels is None:
            return values, gone, None
        data = values[:, 0].tolist()
    entries = list(data)
    lost = [entry is None or bool(entry != entry) or entry == "" for entry in map(_plain, entries)]
    good = [entry for entry, bad in zip(entries, lost, strict=True) if not bad]
    words = [isinstance(entry, str | bool) for entry in good]
    levels = None if like is None else like.levels
    if levels is None and not category and not any(words):
        return _floats(entries, lost, name), torch.tensor(lost, dtype=torch.bool), None
    if levels is None:
        levels = _levels(good, name, category or all(words))
    place = {level: i for i, level in enumerate(levels)}
    if strange := [entry for entry in good if entry not in place]:
        raise ValueError(f"{name} has {strange[0]!r}, which no row had when the critics were fitted")
    codes = torch.tensor(
        [0 if bad else place[entry] for entry, bad in zip(entries, lost, strict=True)], dtype=torch.long
    )
    hot = torch.nn.functional.one_hot(codes, len(levels) or 1).double()
    return hot[:, : 1 if len(levels) <= 2 else None], torch.tensor(lost, dtype=torch.bool), levels


def _is_nullable(data: Any) -> bool:
    """pandas' own integers and floats, whose NA NumPy does not know."""
    return hasattr(data, "to_numpy") and type(data.dtype).__module__.startswith("pandas")


def _plain(entry: Any) -> Any:
    """pandas' NA compares to nothing; it is as good as None."""
    return None if type(entry).__name__ in ("NAType", "NaTType") else entry


def _floats(entries: list[Any], gone: list[bool], name: str) -> Tensor:
    found = []
    for entry, bad in zip(entries, gone, strict=True):
        try:
            if isinstance(entry, bytes) or (not bad and isinstance(entry, complex)):
                raise TypeError
            found.append(float("nan") if bad else float(entry))
        except (TypeError, ValueError):
            kind = type(entry).__name__
            raise TypeError(
                f"{name} has entries of type {kind}, for example {entry!r}: give numbers or words"
            ) from None
    return torch.tensor(found, dtype=torch.float64)[:, None]


def _levels(good: list[Any], name: str, alike: bool) -> tuple[Any, ...]:
    if not alike:
        first = next(entry for entry in good if isinstance(entry, str | bool))
        raise ValueError(f"{name} has numbers and text, for example {first!r}: make it one or the other")
    levels = sorted(set(good), key=lambda level: (type(level).__name__, level))
    if len(levels) > _LEVELS:
        example = next((level for level in levels if not _is_number(level)), levels[0])
        raise ValueError(
            f"{name} has text where numbers are expected ({len(levels)} different values, for example {example!r}; "
            f"up to {_LEVELS} would be taken as categories)"
        )
    return tuple(levels)


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
