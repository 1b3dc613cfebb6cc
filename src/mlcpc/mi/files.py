"""Columns by name from CSV, Parquet, NPZ and NPY files, of any length: rows stream by, and a sample of them is kept."""

import csv
import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlcpc.config import InputError
from mlcpc.data.archives import check_size

__all__ = ["choose", "read_columns"]

_BATCH = 50_000
Batches = Callable[[list[str]], Iterator[dict[str, Any]]]


def read_columns(
    path: Path, pick: Callable[[list[str]], list[str]], most: int, seed: int = 0
) -> tuple[dict[str, Any], int]:
    """name → column for the names that `pick` chooses of all, and how many rows the file has.

    A 2-D array `a` of an NPZ becomes a.0, a.1, …; an NPY file's columns are 0, 1, … Of more than `most` rows a uniform
    sample is kept, in their order.
    """
    suffix = path.suffix.lower()
    if suffix not in _OPEN:
        raise InputError(f"{path} ends in {suffix or 'nothing'}: give one of {', '.join(_OPEN)}")
    if not path.exists():
        raise InputError(f"{path} does not exist")
    with _OPEN[suffix](path) as (names, batches):
        if not names:
            raise InputError(f"{path} has no columns: a heading and one row for each pair are needed")
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise InputError(f"{path} has two columns of one name: {', '.join(map(repr, sorted(twice)))}")
        if odd := [name for name in names if not "".join(name.split()).isprintable()]:
            raise InputError(f"{path} has a column of the name {odd[0]!r}, which a terminal would obey: rename it")
        sample = _Sample(most, seed)
        for batch in batches(pick(names)):
            sample.add(batch)
    if not sample.seen:
        raise InputError(f"{path} has no rows: a heading and one row for each pair are needed")
    columns, is_text = sample.columns, suffix in (".csv", ".tsv")
    return {k: _numbers_if_possible(v) if is_text else v for k, v in columns.items()}, sample.seen


def choose(names: list[str], text: str, flag: str) -> list[str]:
    """The columns that a comma-separated text names; one that is not there is met with the nearest that is.

    >>> choose(["height", "weight"], "wieght", "--x")
    Traceback (most recent call last):
    mlcpc.config.InputError: --x names 'wieght', which is not a column: did you mean 'weight'? There are: height, weight
    """
    found: list[str] = []
    for name in [text] if text in names else text.split(","):
        name = name if name in names else name.strip()
        group = [key for key in names if key.rpartition(".")[0] == name and name]
        if name not in names and not group:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
            listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"{flag} names {name!r}, which is not a column: {hint}There are: {listed}")
        found += [key for key in ([name] if name in names else group) if key not in found]
    return found


class _Sample:
    """A uniform sample of a stream, at most `most` rows in their order: those of the smallest random keys."""

    def __init__(self, most: int, seed: int) -> None:
        self.most, self.seen = most, 0
        self.generator = torch.Generator().manual_seed(seed)
        self.parts: list[dict[str, Any]] = []
        self.keys = torch.zeros(0, dtype=torch.float64)
        self.bound = 1.0

    def add(self, batch: dict[str, Any]) -> None:
        """The next rows."""
        n = len(next(iter(batch.values())))
        keys = torch.rand(n, generator=self.generator, dtype=torch.float64)
        self.seen += n
        kept = keys < self.bound
        self.keys = torch.cat([self.keys, keys[kept]])
        self.parts.append(batch if bool(kept.all()) else _rows(batch, kept))
        if len(self.keys) > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        order = self.keys.argsort()
        self.bound = float(self.keys[order[self.most]])
        kept = self.keys < self.bound
        self.parts, self.keys = [_rows(self._joined(), kept)], self.keys[kept]

    def _joined(self) -> dict[str, Any]:
        return {name: _concatenate([part[name] for part in self.parts]) for name in self.parts[0]} if self.parts else {}

    @property
    def columns(self) -> dict[str, Any]:
        """What was kept."""
        if len(self.keys) > self.most:
            self._cut()
        return self._joined()


def _rows(batch: dict[str, Any], kept: Tensor) -> dict[str, Any]:
    mask, chosen = kept.numpy(), kept.nonzero()[:, 0].tolist()
    return {k: column[mask] if hasattr(column, "dtype") else [column[i] for i in chosen] for k, column in batch.items()}


def _concatenate(parts: list[Any]) -> Any:
    if all(hasattr(part, "dtype") for part in parts):
        import numpy as np

        return np.concatenate(parts) if len(parts) > 1 else parts[0]
    return [entry for part in parts for entry in part]


@contextmanager
def _open_csv(path: Path) -> Iterator[tuple[list[str], Batches]]:
    """Separated by what the heading line has most of: tabs in a .tsv; commas, semicolons or tabs in a .csv."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(
                file, delimiter="\t" if path.suffix == ".tsv" else max(",;\t", key=first.count), strict=True
            )
            header = next(reader, [])
            place = {name: i for i, name in enumerate(header)}

            def rows() -> Iterator[list[str]]:
                for row in reader:
                    if row and len(row) != len(header):
                        raise InputError(
                            f"{path}, line {reader.line_num}: {len(row)} entries under {len(header)} headings; "
                            "the file may be truncated"
                        )
                    if row:
                        yield row

            def batches(names: list[str]) -> Iterator[dict[str, Any]]:
                places, stream = [place[name] for name in names], rows()
                while some := list(islice(stream, _BATCH)):
                    yield {name: [row[at] for row in some] for name, at in zip(names, places, strict=True)}

            yield header, batches
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file of text: {error}") from error


def _numbers_if_possible(entries: list[str]) -> list[Any]:
    """Floats where all entries are numbers; "" and NA, NaN, null are missing."""
    blank = {"", "na", "nan", "null", "none"}
    cleaned = [None if entry.strip().lower() in blank else entry.strip() for entry in entries]
    try:
        return [None if entry is None else float(entry) for entry in cleaned]
    except ValueError:
        return list(cleaned)


@contextmanager
def _open_parquet(path: Path) -> Iterator[tuple[list[str], Batches]]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as missing:
        raise InputError("reading Parquet needs pyarrow: pip install 'mlcpc[parquet]'") from missing

    def plain(column: Any) -> Any:
        numeric = pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
        return (
            column.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False) if numeric else column.to_pylist()
        )

    def batches(names: list[str]) -> Iterator[dict[str, Any]]:
        with _refusing(path, "a Parquet file"):
            for batch in file.iter_batches(batch_size=_BATCH, columns=names):
                yield {name: plain(batch.column(name)) for name in names}

    with _refusing(path, "a Parquet file"):
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
    with file:
        yield names, batches


@contextmanager
def _open_numpy(path: Path) -> Iterator[tuple[list[str], Batches]]:
    """An NPY file stays on disk; of an NPZ file, the arrays that are asked for are loaded."""
    import numpy as np

    with _refusing(path, f"an array file of numbers ({path.suffix.lower()})"):
        arrays = _arrays(path)
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        if not array.nbytes:  # of which a header may claim any number of rows or columns
            continue
        rows = len(array) if array.ndim else 1
        flat = array.reshape(rows, math.prod(array.shape[1:]))
        if array.ndim == 1 and name:
            columns[name] = array
        else:
            columns |= {f"{name}.{i}" if name else str(i): flat[:, i] for i in range(flat.shape[1])}

    def batches(names: list[str]) -> Iterator[dict[str, Any]]:
        lengths = {name: len(columns[name]) for name in names}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} {n}" for name, n in lengths.items())
            raise InputError(f"the columns differ in their number of rows ({told}): they must be pairs, row for row")
        for at in range(0, lengths[names[0]], _BATCH):
            yield {name: _entries(np.array(columns[name][at : at + _BATCH]), path) for name in names}

    yield list(columns), batches


def _arrays(path: Path) -> dict[str, Any]:
    """By name; "" is the one of an NPY file. No array of objects is read: that would be a pickle."""
    import numpy as np

    with path.open("rb") as file:
        single = path.suffix.lower() == ".npy"
        if not file.read(6).startswith(b"\x93NUMPY" if single else b"PK"):
            raise ValueError("it holds something else, by its content")
        if single:
            return {"": np.load(path, mmap_mode="r", allow_pickle=False)}
        file.seek(0)
        with np.load(file, allow_pickle=False) as loaded:
            check_size(sum(member.file_size for member in loaded.zip.infolist()), path.stat().st_size, path)
            arrays = {name: loaded[name] for name in loaded}
            if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
                raise ValueError(f"{strange[0]} in it is no array")
            return arrays


def _entries(array: Any, path: Path) -> Any:
    """Words as str: a damaged file may hold code points that are none."""
    if array.dtype.kind != "U":
        return array
    try:
        return array.tolist()
    except (ValueError, SystemError) as error:
        raise InputError(f"{path} holds text that is no Unicode: write it again") from error


@contextmanager
def _refusing(path: Path, kind: str) -> Iterator[None]:
    """A reader raises whatever a damaged file makes it stumble over: one line instead."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is not {kind}, or is truncated: {said}") from error


_OPEN = {
    ".csv": _open_csv,
    ".tsv": _open_csv,
    ".parquet": _open_parquet,
    ".npz": _open_numpy,
    ".npy": _open_numpy,
}
