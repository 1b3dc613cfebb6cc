"""Files that were made to do harm, or that a disk made wrong: one line each; nothing run, nothing written outside."""

import gzip
import io
import json
import os
import pickle
import socket
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlcpc import checkpoints, data, models, runs
from mlcpc.classify import load_network
from mlcpc.cli import main
from mlcpc.config import InputError
from mlcpc.data import archives
from mlcpc.data.download import download
from mlcpc.metrics import Metrics
from mlcpc.mi.files import read_columns
from mlcpc.sweep import Job, State
from mlcpc.sweep.jobs import look
from reliability import hostile, seeds
from reliability.hostile import Session, Watch
from reliability.parsers import PARSERS, Parser


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.filterwarnings("ignore")
def test_a_short_campaign_finds_nothing(name: str, tmp_path: Path) -> None:
    session = Session(name, 0, tmp_path)
    for content in session.kept[:]:
        session.feed(content)
    assert session.told["read"] > 0, "the seeds are good files"
    for _ in range(25):
        session.again()
    assert session.told["defects"] == []


def test_a_campaign_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that stumbles, one that writes where it must not, one that never ends."""
    outside = tmp_path / "outside"

    def stumbles(path: Path) -> object:
        return {b"height": 1}[path.read_bytes()[:6]]

    def writes(path: Path) -> object:
        return outside.write_bytes(path.read_bytes())

    def stays(path: Path) -> object:
        while True:
            pass

    monkeypatch.setattr(hostile, "SECONDS", 1)
    monkeypatch.setattr(hostile.signal, "alarm", lambda seconds: hostile.signal.setitimer(0, seconds / 10))
    hostile.signal.signal(hostile.signal.SIGALRM, hostile.late)
    for reader, words in ((stumbles, "KeyError"), (writes, "open for writing"), (stays, "more than 1 s")):
        monkeypatch.setitem(PARSERS, "bad", Parser("x", reader, lambda: [b"height", b"HEIGHT"]))
        session = Session("bad", 0, tmp_path / reader.__name__, Watch(tmp_path / reader.__name__))
        for content in session.kept[:]:
            session.feed(content)
        assert words in " ".join(session.told["defects"])
    hostile.signal.signal(hostile.signal.SIGALRM, hostile.signal.SIG_DFL)


# --- no pickle is executed ---------------------------------------------------------------------------------------


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("kind", ["npy", "npz", "checkpoint", "network", "published", "staircase", "cifar-pickle"])
def test_no_pickle_is_executed(kind: str, tmp_path: Path) -> None:
    evil, path = tmp_path / "evil", tmp_path / PARSERS[kind].file
    bomb: Any = Bomb(evil)
    if kind == "npy":
        np.save(path, np.array([bomb, bomb], dtype=object), allow_pickle=True)
    elif kind == "npz":
        np.savez(path, a=np.array([bomb, bomb], dtype=object), allow_pickle=True)
    elif kind in ("published", "staircase"):
        torch.save({"model": bomb, "critic": bomb}, path)
    else:
        path.write_bytes(pickle.dumps({b"data": bomb, b"fine_labels": [1]}))
    with pytest.raises((InputError, ValueError)) as refused:
        PARSERS[kind].read(path)
    assert "\n" not in str(refused.value)
    assert not evil.exists()
    if kind == "staircase":  # a bare pickle by this name, too
        path.write_bytes(pickle.dumps(bomb))
        with pytest.raises(InputError, match="cannot be resumed"):
            PARSERS[kind].read(path)
    assert not evil.exists()


# --- what is small and unpacks to much -----------------------------------------------------------------------------


def member(name: str, content: bytes = b"", **more: Any) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info, io.BytesIO(content)


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_ROOM", 2**20)
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(bytes(2**25)))
    with pytest.raises(InputError, match="made to fill the memory"):
        archives.read_idx(path)
    path.write_bytes(gzip.compress(seeds.idx(np.zeros(2**19, np.uint8))))  # as much as may be
    assert len(archives.read_idx(path)) == 2**19


def test_a_sparse_member_is_refused(tmp_path: Path) -> None:
    """GNU's sparse files say how many zeros they hold, and hold none."""
    path = tmp_path / "cifar-100-binary.tar.gz"
    info, _ = member("cifar-100-binary/train.bin", type=tarfile.GNUTYPE_SPARSE)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % (2**32)  # the size it becomes
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    path.write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    with pytest.raises(InputError, match="made to fill the memory"):
        data.load("cifar100", path)


def test_a_tar_that_leads_back_to_itself_is_refused(tmp_path: Path) -> None:
    """A size below zero: tarfile reads the same member for ever."""
    path = tmp_path / "cifar-100-binary.tar.gz"
    header = bytearray(member("cifar-100-binary/train.bin")[0].tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" + (-512 % 256**11).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    first = member("cifar-100-binary/meta")[0].tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(gzip.compress(first + bytes(header) + bytes(1024)))
    with pytest.raises(InputError, match="damaged"):
        data.load("cifar100", path)


def test_an_npz_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_ROOM", 2**20)
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(2**23))
    with pytest.raises(InputError, match="made to fill the memory"):
        read_columns(path, list, 100)


@pytest.mark.parametrize(
    ("descr", "shape", "says"),
    [
        ("'<U0'", "(2147483648,)", "no columns"),  # two thousand million entries of no width
        ("'<f8'", "(0, 1000000000)", "no columns"),
        ("'<f8'", "(1000000000000,)", "not an array file"),
        ("'<f8'", "(-1, 4)", "not an array file"),
        ("[('a', '<f8')] * 9", "(1,)", "not an array file"),
    ],
)
def test_an_array_that_claims_much(descr: str, shape: str, says: str, tmp_path: Path) -> None:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(16)
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", content)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(InputError, match=says):
            read_columns(tmp_path / name, list, 100)


def test_pickles_that_unfold_without_end(tmp_path: Path) -> None:
    """Thirty lists of the same list twice, as labels, and as the text that newer pickles spell bytes by."""
    nested: Any = [1]
    for _ in range(30):
        nested = [nested, nested]
    (tmp_path / "test").write_bytes(seeds.batches()[1])
    for content in ({"data": seeds.IMAGES, "fine_labels": nested}, {"data": Spelled(nested), "fine_labels": [1]}):
        (tmp_path / "train").write_bytes(pickle.dumps(content, protocol=2))
        with pytest.raises(InputError, match=r"not a batch of CIFAR|not spelled by text"):
            data.load("cifar100", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"N" + b"r\xff\xff\xff\x7f" + b".",  # remember None under 2³¹: 32 GiB of room for memories
        b"\x96" + (2**36).to_bytes(8, "little") + b".",  # 64 GiB of bytes to follow
        b"}" + b"K\x01" + b"\x86".join([b"2"] * 41) + b"\x86" + b"K\x01s.",  # a key of 2⁴¹ ones, to be hashed
        b"(" + b"K\x01" + b"\x86".join([b"2"] * 41) + b"\x86" + b"K\x01d.",
        b"\x8f(" + b"K\x01" + b"\x86".join([b"2"] * 41) + b"\x86" + b"\x90.",
    ],
)
def test_pickles_that_take_all_memory_or_time(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "test").write_bytes(seeds.batches()[1])
    (tmp_path / "train").write_bytes(content)
    with pytest.raises(InputError, match=r"is refused|is not a batch"):
        data.load("cifar100", tmp_path)


class Spelled:
    def __init__(self, text: Any) -> None:
        self.text = text

    def __reduce__(self) -> Any:
        import _codecs

        return _codecs.encode, (self.text, "latin1")


# --- files of a run --------------------------------------------------------------------------------------------------


def test_a_result_that_is_damaged_is_one_line(tmp_path: Path) -> None:
    for content in (b"[" * 100_000, b"\xff\xfe", b"{}", b"", b"[]", b'{"config": 1'):
        with pytest.raises(InputError, match="is not a finished run's result: delete the file"):
            PARSERS["result"].read(write(tmp_path / "in", content))


def test_metrics_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    good = {"kind": "epoch", "step": 2, "epoch": 0, "seconds": 1.0}
    lines = [json.dumps(good).encode(), b"\xff\xfe", b"[1]", b"{}", b'{"step": "x", "kind": "epoch"}', b"[" * 9999]
    write(tmp_path / "metrics.jsonl", b"\n".join(lines) + b'\n{"kind": "ep')
    metrics = Metrics(tmp_path, False, True)
    assert metrics.rows() == [good]
    metrics.forget_after(2)
    assert (tmp_path / "metrics.jsonl").read_text() == json.dumps(good) + "\n"


@pytest.mark.parametrize(
    "row", [b"[" * 9999, b'{"epoch": 1e999, "kind": "x", "seconds": 1}', b'{"epoch": ' + b"9" * 400]
)
def test_a_sweep_looks_at_anything(row: bytes, tmp_path: Path) -> None:
    write(tmp_path / "config.json", b'{"epochs": 3}')
    write(tmp_path / "metrics.jsonl", row + b', "kind": "epoch", "seconds": 1}')
    look(State(Job("a", (), tmp_path), status="running"))


def test_weights_of_another_shape_are_one_line(tmp_path: Path) -> None:
    path, net = tmp_path / "x.safetensors", models.build("resnet8", 3)
    state = net.state_dict()
    for known in (
        {"network": "resnet8", "classes": 3, "state": state},
        {"network": "resnet8", "classes": ["a"], "state": state},
        {"network": "resnet8", "classes": ["a", "b", "c"], "state": {"x": 1}},
        {"network": ["resnet8"], "classes": ["a", "b", "c"], "state": state},
    ):
        checkpoints.save(path, known)
        with pytest.raises(InputError, match=r"x.safetensors") as refused:
            load_network(path)
        assert "\n" not in str(refused.value)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# --- words -----------------------------------------------------------------------------------------------------------


def test_names_of_columns_that_mean_something_to_a_terminal_or_a_drawing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, g = tmp_path / "x.csv", np.random.default_rng(0)
    rows = "\n".join(f"{a},{a + b}" for a, b in g.normal(size=(80, 2)))
    path.write_text(f"[/x],$a_$\n{rows}\n")
    assert main(["mi-matrix", str(path), "--out", str(tmp_path / "[/out]"), "--jobs", "1"]) == 0
    assert "[/x]" in capsys.readouterr().out
    assert main(["mi", str(path), "--x", "\x1b[2J", "--y", "$a_$"]) == 2
    path.write_text(f"a,b\x1b[2J\n{rows}\n")
    assert main(["mi", str(path), "--x", "a", "--y", "b"]) == 2
    told = capsys.readouterr().err
    assert "which a terminal would obey" in told
    assert "\x1b" not in told


def test_a_heading_of_very_many_columns_is_read_in_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",".join(map(str, range(60_000))) + "\n" + ",".join(["1"] * 60_000) + "\n")
    assert len(read_columns(path, list, 10)[0]) == 60_000


def test_a_server_that_says_nonsense_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("mlcpc.data.download._PAUSE", 0.0)
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nx",
        b"\0\0\0",
        b"HTTP/1.1 206 OK\r\nContent-Length: -7\r\n\r\n",
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for i in range(3 * 8):
                try:
                    with server.accept()[0] as connection:
                        connection.recv(4096)
                        connection.sendall(answers[i % 3])
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        for _ in answers:
            with pytest.raises(InputError) as refused:
                download(f"http://127.0.0.1:{server.getsockname()[1]}/x", "0" * 32, tmp_path / "x")
            assert "\n" not in str(refused.value)
    assert not (tmp_path / "x").exists()


def test_parse_json_of_anything() -> None:
    assert runs.parse_json(b'{"a": [1, null]}') == {"a": [1, None]}
    for text in (b"", b"{", b"\xff", b"[" * 10**6, b"1" * 10**6):
        assert runs.parse_json(text) is None
