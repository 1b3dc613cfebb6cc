"""Downloads from a server of our own: whole and checked or not there, taken up again, one line where it cannot be."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import mlcpc.data.download as module
from mlcpc.config import InputError
from mlcpc.data import load
from mlcpc.data.download import download
from test_data import CIFAR10, write

CONTENT = bytes(range(256)) * 2000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content`; breaks off after `breaks` bytes, so many times; remembers what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.ranges, self.breaks = CONTENT, True, [0]
        self.status, self.asked = 200, list[str]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range") or ""
        self.server.asked.append(wanted)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        body = self.server.content[start:]
        if wanted and self.server.ranges and not body:
            self.send_error(416)
            return
        self.send_response(206 if wanted and self.server.ranges else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        stop = self.server.breaks.pop() if self.server.breaks else 0
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[:stop] if stop else body)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("MLCPC_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".x.lock"}


def test_whole_and_once(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "new" / "x"
    for _ in range(2):
        assert download(server.url + "x", MD5, path).read_bytes() == CONTENT
    assert server.asked == [""]
    assert left(path.parent) == {"x"}


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_taken_up_again(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.breaks, server.ranges = [0, 100_000, 200_000], ranges
    assert download(server.url + "x", MD5, tmp_path / "x").read_bytes() == CONTENT
    assert len(server.asked) == 3
    assert server.asked[1] == "bytes=200000-"
    assert left(tmp_path) == {"x"}


def test_a_later_call_goes_on_where_an_earlier_one_stopped(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".x.part").write_bytes(CONTENT[:123_456])
    assert download(server.url + "x", MD5, tmp_path / "x").read_bytes() == CONTENT
    assert server.asked == ["bytes=123456-"]


@pytest.mark.parametrize("kept", [CONTENT, b"y" * len(CONTENT), b"y" * 1000])
def test_a_rest_that_is_whole_or_of_another_file(server: Server, tmp_path: Path, kept: bytes) -> None:
    (tmp_path / ".x.part").write_bytes(kept)
    assert download(server.url + "x", MD5, tmp_path / "x").read_bytes() == CONTENT
    assert left(tmp_path) == {"x"}


def test_a_wrong_md5_leaves_nothing(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"md5 {MD5}, not 0") as error:
        download(server.url + "x", "0" * 32, tmp_path / "x")
    assert "\n" not in str(error.value)
    assert left(tmp_path) == set()


@pytest.mark.parametrize("status", [404, 503])
def test_a_server_that_refuses_is_one_line(server: Server, tmp_path: Path, status: int) -> None:
    server.status = status
    with pytest.raises(InputError, match=f"HTTP {status}.*put it into {tmp_path}") as error:
        download(server.url + "x", MD5, tmp_path / "x")
    assert "\n" not in str(error.value)
    assert left(tmp_path) == set()


def test_no_network_is_one_line_that_says_where_to_put_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("MLCPC_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr("mlcpc.data.cifar._TORONTO", "http://127.0.0.1:9/")
    for name in ("cifar10", "cifar100"):
        with pytest.raises(InputError, match="cannot be fetched") as error:
            load(name)
        assert f"put it into {tmp_path / 'cache'}" in str(error.value)
        assert "\n" not in str(error.value)


def test_a_full_disk_is_one_line_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here, which is always full")
    (tmp_path / ".x.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"No space left on device.*MLCPC_DATA") as error:
        download(server.url + "x", MD5, tmp_path / "x")
    assert "\n" not in str(error.value)
    assert left(tmp_path) == set()


def test_a_folder_that_cannot_be_written_is_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in (tmp_path / "file", Path("/proc/mlcpc")):
        with pytest.raises(InputError, match=r"cannot be written.*MLCPC_DATA") as error:
            download(server.url + "x", MD5, folder / "x")
        assert "\n" not in str(error.value)
    assert server.asked == []


def test_several_processes_fetch_once(server: Server, tmp_path: Path) -> None:
    threads = [threading.Thread(target=download, args=(server.url + "x", MD5, tmp_path / "x")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.asked == [""]
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_load_downloads_into_the_cache(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.content = write(CIFAR10, "archive", tmp_path / "served").read_bytes()
    monkeypatch.setattr("mlcpc.data.cifar._TORONTO", server.url)
    with pytest.raises(InputError, match="not c32a1d4ab5d03f1284b67883e8d87530"):
        load("cifar10")  # ours is not the published archive
    monkeypatch.setattr("mlcpc.data.download.md5_of", lambda path: "c32a1d4ab5d03f1284b67883e8d87530")
    assert len(load("cifar10")) == 20
    assert len(load("cifar10", train=False)) == 4
    assert (tmp_path / "cache" / CIFAR10["archive"]).is_file()
    assert len(server.asked) == 2
