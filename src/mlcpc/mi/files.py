"""Columns by name from CSV, Parquet, NPZ and NPY files."""

import csv
import difflib
import zipfile
from pathlib import Path
from typing import Any

__all__ = ["choose", "read_columns"]

_SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".npy")


def read_columns(path: Path) -> dict[str, Any]:
    """name → column. A 2-D array `a` of an NPZ becomes a.0, a.1, …; an NPY file's columns are 0, 1, …"""
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(f"{path} ends in {suffix or 'nothing'}: give one of {', '.join(_SUFFIXES)}")
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    if suffix in (".csv", ".tsv"):
        return _read_csv(path, "\t" if suffix == ".tsv" else ",")
    if suffix == ".parquet":
        return _read_parquet(path)
    return _read_numpy(path, suffix)


def choose(columns: dict[str, Any], names: list[str], flag: str) -> dict[str, Any]:
    """Some of the columns; a name that is not there is met with the nearest one.

    >>> choose({"height": [1], "weight": [2]}, ["wieght"], "--x")
    Traceback (most recent call last):
    ValueError: --x names 'wieght', which is not a column: did you mean 'weight'? There are: height, weight
    """
    found: dict[str, Any] = {}
    for name in names:
        group = [key for key in columns if key.rpartition(".")[0] == name]
        if name not in columns and not group:
            near = difflib.get_close_matches(name, columns, n=1, cutoff=0.0)
            listed = ", ".join(list(columns)[:12]) + (", …" if len(columns) > 12 else "")
            raise ValueError(
                f"{flag} names {name!r}, which is not a column: did you mean {near[0]!r}? There are: {listed}"
            )
        found |= {key: columns[key] for key in ([name] if name in columns else group)}
    return found


def _read_csv(path: Path, delimiter: str) -> dict[str, Any]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = next(reader, [])
            rows = []
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} entries under {len(header)} headings; "
                        "the file may be truncated"
                    )
                rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file of text: {error}") from error
    rows = [row for row in rows if row]
    if not header or not rows:
        raise ValueError(f"{path} has no rows: a heading line and one line for each pair are needed")
    if len(set(header)) < len(header):
        raise ValueError(
            f"{path} has two columns of one name: {', '.join(sorted({h for h in header if header.count(h) > 1}))}"
        )
    return {name: _numbers_if_possible(entries) for name, entries in zip(header, zip(*rows, strict=True), strict=True)}


def _numbers_if_possible(entries: tuple[str, ...]) -> list[Any]:
    """Floats where all entries are numbers; "" and NA, NaN, null are missing."""
    blank = {"", "na", "nan", "null", "none"}
    cleaned = [None if entry.strip().lower() in blank else entry.strip() for entry in entries]
    try:
        return [None if entry is None else float(entry) for entry in cleaned]
    except ValueError:
        return list(cleaned)


def _read_parquet(path: Path) -> dict[str, Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as missing:
        raise ValueError("reading Parquet needs pyarrow: pip install 'mlcpc[parquet]'") from missing
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file, or is truncated: {str(error).splitlines()[0]}") from error
    return {name: table[name].to_pylist() for name in table.column_names}


def _read_numpy(path: Path, suffix: str) -> dict[str, Any]:
    import numpy as np

    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}
    except (ValueError, EOFError, TypeError, IndexError, zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{path} is not an array file of numbers ({suffix}), or is truncated: {error}") from error
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        flat = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
        if array.ndim == 1 and name:
            columns[name] = array
        else:
            columns |= {f"{name}.{i}" if name else str(i): flat[:, i] for i in range(flat.shape[1])}
    return columns
