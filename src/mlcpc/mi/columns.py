"""What people hand in (tensors, arrays, data frames, columns by name) as rows of numbers, or one clear line why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mlcpc.mi.entries import Column, numbers, of_column

__all__ = ["Column", "Rows", "count", "intake", "raw", "split", "take"]


@dataclass(frozen=True)
class Rows:
    """(n, d) numbers, the columns they came from, and which rows had something missing."""

    values: Tensor
    columns: tuple[Column, ...]
    missing: Tensor

    @property
    def names(self) -> list[str]:
        """Of each column of `values`."""
        return [str(column.key) for column in self.columns for _ in range(column.width)]


def count(data: Any, name: str) -> int:
    """How many rows there are."""
    _refuse(data, name)
    parts = list(_by_name(data, name).values()) if _is_named(data) else [data]
    if not parts:
        raise ValueError(f"{name} has no columns: give at least one")
    shapes = [tuple(getattr(part, "shape", ())) or None for part in parts]
    if any(shape is None and not isinstance(part, Sequence) for shape, part in zip(shapes, parts, strict=True)):
        kind = type(parts[0]).__name__
        raise TypeError(f"{name} is a {kind} but must have one row for each pair: give an array, a tensor or a frame")
    lengths = {len(part) for part in parts}
    if len(lengths) > 1:
        raise ValueError(
            f"the columns of {name} have {min(lengths)} to {max(lengths)} rows: they must be of one length"
        )
    return lengths.pop()


def take(data: Any, rows: Tensor) -> Any:
    """Some rows of anything that `intake` takes, in the same kind."""
    if isinstance(data, Tensor):
        return data[rows.to(data.device)]
    if isinstance(data, Mapping):
        return {key: take(column, rows) for key, column in data.items()}
    if hasattr(data, "iloc"):
        return data.iloc[rows.numpy()]
    return data[rows.numpy()] if hasattr(data, "__array__") else [data[i] for i in rows.tolist()]


def intake(data: Any, name: str, like: tuple[Column, ...] | None = None) -> Rows:
    """One side. A 1-D thing is one column; words and categories become one indicator for each level.

    `like` are the columns of rows seen before: the same ones are looked for, by name where there are names, and their
    levels are kept.
    """
    rows = count(data, name)
    if _is_array(data):
        values, gone = numbers(data, name)
        values = values.flatten(1)
        _check_width(values.shape[1], like, name)
        return Rows(values, like or tuple(Column(i) for i in range(values.shape[1])), gone)
    named = split(data, name)
    if _is_named(data) and like is not None and [column.key for column in like] != list(range(len(like))):
        named = _in_order(named, like, name)
    if like is not None and len(like) != len(named):
        raise ValueError(f"{name} has {len(named)} columns but the critics were fitted on {len(like)}")
    bare = list(named) == [0]
    blocks, gone, columns = [], torch.zeros(rows, dtype=torch.bool), []
    for i, (key, column) in enumerate(named.items()):
        label = name if bare else f"{name}[{key!r}]"
        _refuse(column, label)
        block, bad, levels = of_column(column, label, None if like is None else like[i])
        blocks.append(block)
        columns.append(Column(key, levels))
        gone |= bad
    return Rows(torch.cat(blocks, 1), tuple(columns), gone)


def split(data: Any, name: str) -> dict[Any, Any]:
    """Its columns, by name or by position."""
    rows = count(data, name)
    if _is_named(data):
        return _by_name(data, name)
    if isinstance(data, Tensor) or hasattr(data, "__array__"):
        if data.ndim == 1:
            return {0: data}
        flat = data.reshape(rows, -1) if data.ndim > 2 else data
        return {i: flat[:, i] for i in range(flat.shape[1])}
    if rows and all(isinstance(row, list | tuple) for row in data):
        widths = sorted({len(row) for row in data})
        if len(widths) > 1:
            raise ValueError(f"the rows of {name} have {widths[0]} to {widths[-1]} entries: each must have as many")
        return dict(enumerate(zip(*data, strict=True)))
    return {0: data}


def raw(data: Any, name: str) -> Rows:
    """Rows of any shape and dtype, for an encoder; a row with a NaN counts as missing."""
    if not _is_array(data):
        raise TypeError(
            f"{name} has an encoder, so it must be a tensor or an array of numbers, not {type(data).__name__}"
        )
    if not isinstance(data, Tensor):
        import numpy as np

        data = torch.from_numpy(np.array(data))
    values = data.detach().cpu()
    return Rows(values, (), values.reshape(len(values), -1).isnan().any(1))


def _refuse(data: Any, name: str) -> None:
    kind = getattr(getattr(data, "dtype", None), "kind", "O")
    if isinstance(data, str | bytes):
        raise TypeError(f"{name} is {data!r}: give the column itself, with one row for each pair")
    if kind == "c" or (isinstance(data, Tensor) and data.is_complex()):
        raise TypeError(f"{name} is complex: give its real and imaginary parts as two columns")
    if kind in "Mm":
        raise TypeError(f"{name} holds dates or durations: give a number, such as the seconds since the first")
    if kind == "V":
        raise TypeError(f"{name} is a structured array: give a dictionary of its fields")
    if (isinstance(data, Tensor) and data.layout != torch.strided) or hasattr(data, "tocsr"):
        raise TypeError(f"{name} is sparse: give a dense array, .to_dense() or .toarray()")


def _is_array(data: Any) -> bool:
    """A tensor or an array of numbers."""
    if _is_named(data):
        return False
    return isinstance(data, Tensor) or getattr(getattr(data, "dtype", None), "kind", "O") in "biuf"


def _is_named(data: Any) -> bool:
    return isinstance(data, Mapping) or hasattr(data, "columns")


def _by_name(data: Any, name: str) -> dict[Any, Any]:
    keys = list(data) if isinstance(data, Mapping) else list(data.columns)
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{name} has two columns of the name {twice!r}: rename one")
    return {key: data[key] for key in keys}


def _in_order(named: dict[Any, Any], like: tuple[Column, ...], name: str) -> dict[Any, Any]:
    """The columns as they were when fitting."""
    for column in like:
        if column.key not in named:
            raise ValueError(f"{name} has no column {column.key!r}, which the critics were fitted on")
    return {column.key: named[column.key] for column in like}


def _check_width(width: int, like: tuple[Column, ...] | None, name: str) -> None:
    if width == 0:
        raise ValueError(f"{name} has no columns: give at least one")
    expected = width if like is None else sum(column.width for column in like)
    if width != expected:
        raise ValueError(f"{name} has {width} columns but the critics were fitted on {expected}")
