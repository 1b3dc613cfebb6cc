"""Readers of the published files: CIFAR's binary records, its Python pickles (data only, nothing runs), idx files.

Archives are read in place: nothing is unpacked to disk, so no member of theirs can be written anywhere, and into memory
no more than `check_size` allows.
"""

import gzip
import io
import math
import pickle
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from mlcpc.config import InputError

__all__ = ["Inside", "check_size", "pickled", "read_idx", "records", "unzipped"]

_PIXELS = 3 * 32 * 32
_ROOM = 2**30
"""bytes that any file may unpack to"""
_RATIO = 100
"""times its own size that it may unpack to beyond that"""


def check_size(unpacked: int, packed: int, path: Path) -> None:
    """Refuse a file of `packed` bytes that is made to fill the memory: unpacked a GiB and a hundred times its size."""
    if unpacked > max(_ROOM, _RATIO * packed):
        raise InputError(
            f"{path} has {packed} bytes and unpacks to {unpacked} or more: it is made to fill the memory, and refused"
        )


class Inside:
    """What an extracted folder holds, or `folder` inside a .tar.gz: call with a file's name for its content."""

    def __init__(self, place: Path, folder: str) -> None:
        self.place, self.members = place, dict[str, bytes]()
        if place.is_dir():
            return
        try:
            with tarfile.open(fileobj=io.BytesIO(unzipped(place)), mode="r:") as archive:
                self._take(archive, folder)
        except InputError:
            raise
        except Exception as error:  # tarfile stumbles over damaged numbers in many ways
            raise _damaged(place, error) from error

    def _take(self, archive: tarfile.TarFile, folder: str) -> None:
        """The folder's plain files. Links and the rest are left out; a sparse file is larger than the archive."""
        taken, before, packed = 0, -1, self.place.stat().st_size
        for member in archive:
            if member.offset <= before:  # a negative size leads back, for ever
                raise _damaged(self.place, "its members overlap")
            before = member.offset
            top, _, name = member.name.removeprefix("./").partition("/")
            if top == folder and member.isfile():
                taken += member.size
                check_size(taken, packed, self.place)
                self.members[name] = archive.extractfile(member).read()  # type: ignore[union-attr]

    def __call__(self, name: str) -> bytes:
        if self.place.is_dir():
            return _read(self.place / name)
        if name not in self.members:
            raise InputError(f"{self.place} holds no file {name}: it is another archive, or is damaged; get it again")
        return self.members[name]


def unzipped(path: Path) -> bytes:
    """The whole of a .gz, so that its checksum is looked at; a plain file as it is."""
    content = _read(path)
    if content[:2] != b"\x1f\x8b":
        if path.suffix == ".gz":
            raise _damaged(path, "it is not a gzip file")
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            whole = file.read(max(_ROOM, _RATIO * len(content)) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    check_size(len(whole), len(content), path)
    return whole


def records(read: Inside, names: list[str], label_bytes: int) -> tuple[Tensor, Tensor]:
    """CIFAR's binary layout: a record is `label_bytes` labels, of which the last is the class, and 3×32×32 pixels."""
    length = label_bytes + _PIXELS
    parts = []
    for name in names:
        content = read(name)
        if not content or len(content) % length:
            raise InputError(
                f"{read.place / name} has {len(content)} bytes, which is no whole number of records of {length}: it is "
                "cut off or another kind of file; delete it and get it again"
            )
        parts.append(_bytes(content).view(-1, length))
    rows = torch.cat(parts)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].long()


def pickled(read: Inside, names: list[str], label_key: str) -> tuple[Tensor, Tensor]:
    """CIFAR's Python layout."""
    pixels, labels = [], []
    for name in names:
        content = _unpickle(read(name), read.place / name)
        try:
            data, own = content["data"], content[label_key]
            if not isinstance(own, list) or not all(type(label) is int for label in own):
                raise TypeError(f"{label_key} are not numbers")
            pixels.append(_bytes(data.content).view(len(own), 3, 32, 32))
            labels.append(torch.tensor(own, dtype=torch.int64))
        except (KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"{read.place / name} is not a batch of CIFAR with {label_key}: delete it and get it again"
            ) from error
    return torch.cat(pixels), torch.cat(labels)


class _Array:
    """What stands in for a numpy array: its bytes and nothing else, so that reading one can do nothing else."""

    content = b""

    def __init__(self, *ignored: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        _, _shape, kind, by_column, content = state
        if not isinstance(kind, _Kind) or kind.code not in ("u1", "uint8") or by_column or type(content) is not bytes:
            raise pickle.UnpicklingError("an array is not of bytes, row by row")
        self.content = content


class _Kind:
    """What stands in for a numpy dtype."""

    def __init__(self, code: Any = "", *ignored: Any) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None: ...


def _encoded(text: Any, codec: Any = "") -> bytes:
    """What stands in for codecs.encode, with which newer pickles spell bytes."""
    if type(text) is not str:
        raise pickle.UnpicklingError("bytes are not spelled by text")
    return text.encode("latin1")


def _named(load: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    """Make entries of a dict only under names: hashing tuples of tuples may take for ever."""

    def checked(self: Any) -> None:
        if not all(isinstance(key, str | bytes) for key in self.stack[keys]):
            raise pickle.UnpicklingError("a key is no name")
        load(self)

    return checked


class _DataOnly(pickle._Unpickler):
    """Makes plain values and byte arrays; whatever else a pickle names is refused, not imported.

    The reader in Python: the one in C makes room for 2³² memories where five bytes ask for it.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in (pickle.BYTEARRAY8, pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET)
    }
    for _code, _keys in (
        (pickle.SETITEM, slice(-2, -1)),
        (pickle.SETITEMS, slice(0, None, 2)),
        (pickle.DICT, slice(0, None, 2)),
    ):
        dispatch[_code[0]] = _named(dispatch[_code[0]], _keys)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _encoded
        if module.split(".")[0] == "numpy":
            stand_in = {"_reconstruct": _Array, "ndarray": _Array, "dtype": _Kind}.get(name)
            if stand_in is not None:
                return stand_in
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which data has no need of")


def _unpickle(content: bytes, path: Path) -> dict[str, Any]:
    try:
        made = _DataOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise anything
        said = " ".join(str(error).split())
        raise InputError(f"{path} is refused: {said}. Use the binary archives of CIFAR, which hold no code") from error
    if not isinstance(made, dict):
        raise InputError(f"{path} is not a batch of CIFAR: delete it and get it again")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in made.items()}


def read_idx(path: Path) -> Tensor:
    """The array of bytes of an idx file, gzipped or not."""
    content = unzipped(path)
    if content[:3] != b"\0\0\x08" or len(content) < 4 or len(content) < 4 + 4 * content[3]:
        raise InputError(f"{path} is not an idx file of bytes: get it again")
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    body = content[4 + 4 * content[3] :]
    if len(body) != math.prod(shape) or not body:
        raise InputError(f"{path} says {shape} and holds {len(body)} bytes: it is cut off; delete it and get it again")
    return _bytes(body).view(shape)


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _damaged(path: Path, reason: object) -> InputError:
    return InputError(f"{path} is damaged or cut off ({reason}): delete it and get it again")
