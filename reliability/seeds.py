"""Good files, small, of every kind that mlcpc reads: what the campaign of hostile files starts from."""

import gzip
import io
import json
import pickle
import struct
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlcpc import checkpoints, models
from mlcpc.classify import Training, save_network
from mlcpc.mi.staircase import Staircase, climb
from reliability.record import ROOT

IMAGES = np.arange(2 * 3072, dtype=np.uint64).astype(np.uint8).reshape(2, 3072)
TABLE = np.linspace(0, 1, 12).reshape(4, 3)
STAIRS = Staircase(methods=(("ml_cpc", 1.0),), levels=(1,), steps=2, batch=3, dim=2, hidden=2, embedding=2)


def written(write: Callable[..., object], *what: object, name: str = "file", **settings: Any) -> bytes:
    """What `write(path, *what, **settings)` puts into a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path, *what, **settings)
        return path.read_bytes()


def tables() -> list[bytes]:
    return [
        b"height,weight,age\n1.5,2,3\n2.5,NA,4\n3.5,1e3,5\n",
        b'a;b\n"x ""y""";1\n"two\nlines";2\n',
        b"\xef\xbb\xbfa\tb\n1\tup\n2\tdown\n",
    ]


def parquets() -> list[bytes]:
    import pyarrow
    from pyarrow import parquet

    rows = {
        "a": [1, 2, None],
        "b": ["x", "y", None],
        "c": [b"\xff", b"", None],
        "d": [{"e": 1}, None, {"e": 2}],
        "f": [[1.5], [], None],
    }
    kinds = pyarrow.table({name: rows[name] for name in "abcdf"})
    when = pyarrow.array([2**62, 0, None], pyarrow.timestamp("ns"))
    long = pyarrow.table({"t": when, "u": pyarrow.array([1, 2, 3], pyarrow.uint64()), "k": pyarrow.array(list("xyx"))})
    return [
        written(lambda path: parquet.write_table(kinds, path)),
        written(lambda path: parquet.write_table(long, path, compression="gzip", use_dictionary=["k"])),
    ]


def npys() -> list[bytes]:
    arrays: list[Any] = [TABLE, TABLE[:, 0].astype(np.float16), np.array(["a", "b"]), np.ones((2, 0))]
    arrays += [np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]), np.array([1 + 1j]), np.array(3)]
    found = [written(np.save, array, name="x.npy") for array in arrays]
    return [*found, written(np.save, np.array([{}, None]), name="x.npy", allow_pickle=True)]


def npzs() -> list[bytes]:
    found = [{"a": TABLE, "b": TABLE[:, 0], "words": np.array(["x", "y", "z", "w"])}, {"o": np.array([{}, None])}, {}]
    return [written(np.savez_compressed, name="x.npz", **some) for some in found]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def binary() -> list[bytes]:
    row = bytes([7, 42]) + IMAGES[0].tobytes()
    return [packed({f"cifar-100-binary/{part}.bin": row * n for part, n in (("train", 2), ("test", 1))})]


def batches() -> list[bytes]:
    contents = {b"data": IMAGES, b"fine_labels": [3, 4], b"filenames": [b"x", b"y"]}
    return [pickle.dumps(contents, protocol=protocol) for protocol in (0, 2, 4, 5)]


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def python_archive() -> list[bytes]:
    return [packed({f"cifar-100-python/{part}": batches()[1] for part in ("train", "test")})]


def trees() -> list[bytes]:
    tree = {"w": torch.arange(6.0).view(2, 3), "n": (1, [True, None, "x"]), 3: {"half": torch.ones(2).bfloat16()}}
    return [written(checkpoints.save, tree)]


def networks() -> list[bytes]:
    found = []
    for classes in (("a", "b"), ("c",)):
        net = models.build("resnet8", len(classes))
        for p in net.parameters():
            torch.nn.init.zeros_(p)
        found.append(written(save_network, net, "resnet8", classes))
    return found


def published() -> list[bytes]:
    states: list[Any] = [{"model": {"conv1.weight": torch.ones(2), "linear.bias": torch.zeros(2)}, "epoch": 3}]
    states += [{"state_dict": {"module.x": torch.ones(2).half()}}, {"x": 1}, torch.ones(2).to_sparse()]
    return [written(lambda path, state: torch.save(state, path), state) for state in states]


def images() -> list[bytes]:
    from PIL import Image

    image = Image.fromarray(IMAGES[0].reshape(32, 32, 3))
    found = []
    for kind in ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM", "GIF"):
        out = io.BytesIO()
        image.save(out, kind)
        found.append(out.getvalue())
    return found


def rows() -> list[bytes]:
    row = {"kind": "epoch", "epoch": 1, "step": 3, "rate": 0.1, "loss": 1.5, "seconds": 2.5, "epochs": 4}
    step = {**row, "kind": "step", "step": 2}
    return ["".join(json.dumps(some) + "\n" for some in (step, row)).encode(), b'{"kind": "ep']


def staircases() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        climb(STAIRS, folder=Path(folder), every=1)
        return [(Path(folder) / "separable.pt").read_bytes()]


def pages() -> list[bytes]:
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    row = {"kind": "epoch", "epoch": 0, "step": 3, "rate": 0.1, "loss": 1.5, "top1": 0.5, "seconds": 2.5}
    config = {**asdict(Training("resnet8", "digits", 1)), evil: evil, "network": evil}
    found = {
        "config": config,
        "seconds": 1,
        "environment": {"device": evil, "torch": evil},
        "top1": 0.5,
        "curve": [row],
    }
    checks = {"target": "figure1", "scale": evil, "checks": [{"claim": evil, "holds": True, "measured": evil}]}
    table = (ROOT / "results" / "figure1" / "paper" / "figure1.csv").read_text().splitlines()[:30]
    parts = [json.dumps(found), json.dumps(config), json.dumps(row) + "\n", json.dumps(checks), "\n".join(table)]
    return ["\n====\n".join(parts).encode(), "\n====\n".join([*parts[:4], f"scale,{evil}\nx,1"]).encode()]
