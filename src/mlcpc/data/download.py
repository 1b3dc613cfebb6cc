"""A file from the network: whole and checked, or not there. What a lost connection leaves is taken up again."""

import errno
import hashlib
import http.client
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from mlcpc.config import InputError
from mlcpc.runs import alone

__all__ = ["cache_folder", "download", "md5_of"]

_TRIES = 5
_PAUSE = 0.25
"""seconds before the first new try, half"""
_PATIENCE = 30.0
"""seconds without a byte"""


def cache_folder() -> Path:
    """$MLCPC_DATA, or mlcpc in the user's cache."""
    own = os.environ.get("MLCPC_DATA")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own).expanduser() if own else Path(cache) / "mlcpc"


def download(url: str, md5: str, path: Path) -> Path:
    """Fetch `url` to `path` unless it is there; under a hidden name until its md5 is right."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path.with_name(f".{path.name}.lock")):  # one process fetches, the others find it there
            if not path.exists():
                _fetch_and_check(url, md5, path)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _part(path).unlink(missing_ok=True)
        raise InputError(
            f"{path} cannot be written ({error.strerror or error}): set MLCPC_DATA to a folder with room, "
            f"or write --data-dir with the folder where {path.name} is"
        ) from error
    return path


def md5_of(path: Path) -> str:
    """As hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _fetch_and_check(url: str, md5: str, path: Path) -> None:
    part = _part(path)
    resumed = part.exists()
    _fetch(url, part, path)
    if md5_of(part) != md5 and resumed:  # what was there before may be to blame
        part.unlink()
        _fetch(url, part, path)
    found = md5_of(part)
    if found != md5:
        part.unlink()
        raise InputError(
            f"{url} came with md5 {found}, not {md5}: it is damaged or another file, and was deleted; try again, "
            f"or get {path.name} elsewhere and put it into {path.parent}"
        )
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)


def _fetch(url: str, part: Path, path: Path) -> None:
    """Until the server's last byte, going on where a connection broke."""
    tries, moving = 0, False
    while True:
        before = _size(part)
        try:
            return _receive(url, part, before)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing after what is there: it is whole, or of another file
                return None
            reason = f"HTTP {error.code}"
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        grown = _size(part) > before
        tries, moving = (1 if grown else tries + 1), moving or grown
        if not moving or tries == _TRIES:
            break
        time.sleep(_PAUSE * 2**tries)
    raise InputError(
        f"{url} cannot be fetched ({reason}): get {path.name} on a machine with a network and put it into {path.parent}"
        ", or write --data-dir with the folder where it is"
    )


def _receive(url: str, part: Path, have: int) -> None:
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        if answer.status != 206:  # the server starts anew
            have = 0
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        show = _Progress(url.rsplit("/", 1)[-1], total)
        with part.open("ab" if have else "wb") as file:
            while block := answer.read(1 << 16):
                file.write(block)
                have += len(block)
                show(have)
    if total is not None and have < total:
        raise ConnectionError(f"the connection broke after {have} of {total} bytes")
    show.end(have)


class _Progress:
    """On a terminal one line that changes; else a line at the end."""

    def __init__(self, name: str, total: int | None) -> None:
        self.name, self.total, self.shown = name, total, 0.0

    def __call__(self, have: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.shown > 0.2:
            self.shown = time.monotonic()
            of = f" of {self.total / 1e6:.1f}" if self.total else ""
            sys.stderr.write(f"\rdownloading {self.name}: {have / 1e6:.1f}{of} MB ")
            sys.stderr.flush()

    def end(self, have: int) -> None:
        sys.stderr.write(f"{chr(13) if sys.stderr.isatty() else ''}downloaded {self.name}: {have / 1e6:.1f} MB      \n")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
