"""Data sets by name: every layout gives the same images, and every wrong file one clear line."""

import gzip
import io
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlcpc import data
from mlcpc.config import InputError
from mlcpc.data import STATISTICS, Images, archives, load

Kind = dict[str, Any]
CIFAR10: Kind = {
    "name": "cifar10",
    "folder": "cifar-10-batches-bin",
    "archive": "cifar-10-binary.tar.gz",
    "python": ("cifar-10-batches-py", "cifar-10-python.tar.gz", b"labels"),
    "train": [f"data_batch_{i}" for i in range(1, 6)],
    "test": ["test_batch"],
    "classes": 10,
}
CIFAR100: Kind = {
    "name": "cifar100",
    "folder": "cifar-100-binary",
    "archive": "cifar-100-binary.tar.gz",
    "python": ("cifar-100-python", "cifar-100-python.tar.gz", b"fine_labels"),
    "train": ["train"],
    "test": ["test"],
    "classes": 100,
}
REAL = [Path(os.environ.get("MLCPC_DATA") or "."), Path(__file__).parents[2] / "shared" / "data"]
KINDS = [pytest.param(kind, id=kind["name"]) for kind in (CIFAR10, CIFAR100)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCPC_DATA", str(tmp_path / "cache"))


def make(kind: Kind, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Four images for every file."""
    random = np.random.default_rng(seed)
    return {
        name: (random.integers(0, 256, (4, 3, 32, 32), np.uint8), random.integers(0, kind["classes"], 4))
        for name in kind["train"] + kind["test"]
    }


def binary(kind: Kind, images: np.ndarray, labels: np.ndarray) -> bytes:
    """The published layout, written out: [coarse label,] label, red, green, blue, each row by row."""
    out = bytearray()
    for image, label in zip(images, labels, strict=True):
        out += bytes([7, label] if kind["classes"] == 100 else [label])
        for channel in image:
            for row in channel:
                out += bytes(row.tolist())
    return bytes(out)


def pickled(kind: Kind, images: np.ndarray, labels: np.ndarray) -> bytes:
    return pickle.dumps({b"data": images.reshape(4, -1), kind["python"][2]: labels.tolist()}, protocol=2)


def packed(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write(kind: Kind, layout: str, root: Path) -> Path:
    """What --data-dir is given."""
    made = make(kind, 0)
    python = "python" in layout
    folder, archive = (kind["python"][0], kind["python"][1]) if python else (kind["folder"], kind["archive"])
    write_one, suffix = (pickled, "") if python else (binary, ".bin")
    files = {f"{folder}/{name}{suffix}": write_one(kind, *made[name]) for name in made}
    if "archive" in layout:
        path = packed(root / archive, files)
        return root if "folder" in layout else path
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root if "parent" in layout else root / folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "layout",
    ["archive", "archive in folder", "extracted", "extracted, parent", "python archive", "python, parent", "python"],
)
def test_every_layout_gives_the_same_images(kind: Kind, layout: str, tmp_path: Path) -> None:
    root, made = write(kind, layout, tmp_path / "given"), make(kind, 0)
    for train, names in ((True, kind["train"]), (False, kind["test"])):
        found = load(kind["name"], root, train)
        assert isinstance(found, Images)
        np.testing.assert_array_equal(found.pixels.numpy(), np.concatenate([made[name][0] for name in names]))
        assert found.labels.tolist() == [label for name in names for label in made[name][1]]
        assert len(found.classes) == kind["classes"]
    assert sorted(found.classes) == list(found.classes), "CIFAR's classes are in alphabetical order"


@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_is_looked_into(kind: Kind, tmp_path: Path) -> None:
    write(kind, "archive in folder", tmp_path / "cache")
    assert len(load(kind["name"])) == 4 * len(kind["train"])


def test_real_cifar10() -> None:
    """Counts of each class and the published statistics, which no layout mistake would leave as they are."""
    place = next((place for place in REAL if (place / CIFAR10["folder"]).is_dir()), None)
    if place is None:
        pytest.skip("no CIFAR-10 here: set MLCPC_DATA to a folder that holds cifar-10-batches-bin")
    train, test = load("cifar10", place), load("cifar10", place, train=False)
    assert isinstance(train, Images)
    assert train.labels.bincount().tolist() == [5000] * 10
    assert test.labels.bincount().tolist() == [1000] * 10
    moments = torch.zeros(2, 3, dtype=torch.float64)
    for some in train.pixels.split(5000):
        level = some.float() / 255
        moments += torch.stack([level.mean((0, 2, 3)), level.square().mean((0, 2, 3))]) / 10
    mean, std = STATISTICS["cifar10"]
    torch.testing.assert_close(moments[0].float(), torch.tensor(mean), atol=1e-4, rtol=0)
    torch.testing.assert_close((moments[1] - moments[0] ** 2).sqrt().float(), torch.tensor(std), atol=1e-4, rtol=0)
    rows = train.pixels[:100].float()
    near, far = ((rows[:, :, step:] - rows[:, :, :-step]).abs().mean() for step in (1, 16))
    assert near < far / 2, "neighbouring rows look alike"


# --- what is refused ---------------------------------------------------------------------------------------------


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    said = str(error.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("damage", ["cut", "flipped bit", "not gzip", "other archive", "empty"])
def test_a_damaged_archive_is_one_line(damage: str, tmp_path: Path) -> None:
    path = write(CIFAR10, "archive", tmp_path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1  # random bytes are stored uncompressed: only the checksum at the end can tell
    path.write_bytes(
        {"cut": whole[:-100], "flipped bit": bytes(flipped), "not gzip": b"<html>404</html>", "empty": b""}.get(
            damage, whole
        )
    )
    if damage == "other archive":
        packed(path, {"something/else.bin": b"x"})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"damaged|another archive") as error:
        load("cifar10", path)
    assert str(path) in one_line(error)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("bytes_left", "says"), [(3073 * 3 + 100, "cut off"), (0, "0 bytes")])
def test_a_cut_off_file_is_one_line(bytes_left: int, says: str, tmp_path: Path) -> None:
    root = write(CIFAR10, "extracted", tmp_path)
    path = root / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:bytes_left])
    with pytest.raises(InputError, match=says) as error:
        load("cifar10", root)
    assert str(path) in one_line(error)
    path.unlink()
    with pytest.raises(InputError, match="No such file") as error:
        load("cifar10", root)
    assert str(path) in one_line(error)


def test_labels_out_of_range_are_one_line(tmp_path: Path) -> None:
    """CIFAR-10's file name with other content of the right length."""
    root = write(CIFAR10, "extracted", tmp_path)
    (root / "test_batch.bin").write_bytes(bytes([200]) * 3073)
    with pytest.raises(InputError, match="labels from 200") as error:
        load("cifar10", root, train=False)
    one_line(error)


def test_nothing_of_an_archive_is_written_anywhere(tmp_path: Path) -> None:
    """Members that point outside, links, devices: none is unpacked, only the files asked for are read."""
    path = tmp_path / "in" / CIFAR10["archive"]
    files = {f"{CIFAR10['folder']}/{name}.bin": binary(CIFAR10, *make(CIFAR10, 0)[name]) for name in make(CIFAR10, 0)}
    evil = {"../evil": b"x", "/tmp/mlcpc-evil": b"x", f"{CIFAR10['folder']}/../../evil": b"x"}
    packed(path, evil | files)
    before = sorted(tmp_path.rglob("*"))
    assert len(load("cifar10", path)) == 20
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/mlcpc-evil").exists()
    with tarfile.open(path, "w:gz") as archive:
        for name in files:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
    with pytest.raises(InputError, match="holds no file"):
        load("cifar10", path)


class Payload:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.made = function, arguments

    def __reduce__(self) -> Any:
        return self.made


@pytest.mark.parametrize("way", ["system", "eval", "open", "numpy", "object array"])
def test_a_malicious_pickle_is_refused_and_not_run(way: str, tmp_path: Path) -> None:
    root, evil = write(CIFAR10, "python", tmp_path), tmp_path / "evil"
    payload: Any = {
        "system": Payload(os.system, f"touch {evil}"),
        "eval": Payload(eval, f"open({str(evil)!r}, 'w')"),
        "open": Payload(open, str(evil), "w"),
        "numpy": Payload(np.save, str(evil), 1),
        "object array": np.array([Payload(open, str(evil), "w")], dtype=object),
    }[way]
    for content in (payload, {b"data": payload, b"labels": [1] * 4}):
        (root / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
        with pytest.raises(InputError, match="is refused: ") as error:
            load("cifar10", root)
        assert str(root / "data_batch_1") in one_line(error)
        assert not evil.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickle.dumps([1]), pickle.dumps({"data": 3, "labels": [1]}), pickle.dumps({"labels": [1]})],
)
def test_other_pickles_are_one_line(content: bytes, tmp_path: Path) -> None:
    root = write(CIFAR10, "python", tmp_path)
    (root / "data_batch_1").write_bytes(content)
    with pytest.raises(InputError, match=r"is refused|is not a batch of CIFAR") as error:
        load("cifar10", root)
    one_line(error)


def test_arrays_of_newer_pickles_are_read_too(tmp_path: Path) -> None:
    """numpy 1 and 2, protocols 2 to 4: other spellings of the same bytes."""
    array = np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, 3072)
    for protocol in (2, 3, 4):
        content = pickle.dumps({"data": array, "labels": [3, 4]}, protocol=protocol)
        for spelled in (content, content.replace(b"numpy._core", b"numpy.core") if protocol < 4 else content):
            (tmp_path / "batch").write_bytes(spelled)
            pixels, labels = archives.pickled(archives.Inside(tmp_path, ""), ["batch"], "labels")
            np.testing.assert_array_equal(pixels.flatten(1).numpy(), array)
            assert labels.tolist() == [3, 4]


# --- Fashion-MNIST, digits -----------------------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.mark.parametrize("place", ["", "FashionMNIST/raw", "raw"])
@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist(place: str, zipped: bool, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    grey, labels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), np.uint8), np.arange(5, dtype=np.uint8)
    for part, keep in (("train", 5), ("t10k", 3)):
        for name, array in ((f"{part}-images-idx3-ubyte", grey[:keep]), (f"{part}-labels-idx1-ubyte", labels[:keep])):
            content = idx(array)
            path = tmp_path / place / (name + ".gz" * zipped)
            path.write_bytes(gzip.compress(content) if zipped else content)
    train, test = load("fashion-mnist", tmp_path), load("fashion-mnist", tmp_path, train=False)
    assert isinstance(train, Images)
    assert (len(train), len(test), train.labels.tolist()) == (5, 3, [0, 1, 2, 3, 4])
    assert train.pixels.shape == (5, 3, 32, 32)
    for channel in range(3):
        np.testing.assert_array_equal(train.pixels[:, channel, 2:30, 2:30].numpy(), grey)
    assert train.pixels.sum() == 3 * int(grey.sum())
    for content, says in ((idx(grey)[:-1], "cut off"), (b"\0\0\x0d\1", "not an idx"), (idx(grey[:2]), "together")):
        path.with_name(f"train-images-idx3-ubyte{'.gz' * zipped}").write_bytes(
            gzip.compress(content) if zipped else content
        )
        with pytest.raises(InputError, match=says) as error:
            load("fashion-mnist", tmp_path)
        one_line(error)


def test_fashion_mnist_is_not_taken_from_mnist_files_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / "cache" / name).write_bytes(idx(np.zeros(1, np.uint8)))
    monkeypatch.setattr("mlcpc.data.named._ZALANDO", "http://127.0.0.1:9/")
    with pytest.raises(InputError, match="cannot be fetched"):
        load("fashion-mnist")


def test_digits_are_split_once_and_for_all() -> None:
    train, test = load("digits"), load("digits", train=False)
    assert isinstance(train, Images)
    assert isinstance(test, Images)
    assert (train.pixels.shape, test.pixels.shape) == ((1437, 3, 32, 32), (360, 3, 32, 32))
    assert torch.equal(load("digits").take(50).pixels, train.pixels[:50])
    seen = {bytes(image.flatten().tolist()) for image in train.pixels[:, 0, ::2, ::2]}
    assert not any(bytes(image.flatten().tolist()) in seen for image in test.pixels[:, 0, ::2, ::2])
    level = train.pixels.double() / 255
    mean, std = STATISTICS["digits"]
    assert (float(level.mean()), float(level.std())) == pytest.approx((mean[0], std[0]), abs=5e-5)
    near = (test.pixels[:, 0].flatten(1).float() @ _unit(train.pixels[:, 0].flatten(1).float()).T).argmax(1)
    assert (train.labels[near] == test.labels).float().mean() > 0.95, "labels belong to the images"


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=1, keepdim=True)


def test_digits_without_scikit_learn_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match="pip install scikit-learn"):
        load("digits")


# --- names and places ----------------------------------------------------------------------------------------------


def test_names_and_places_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for arguments, says in (
        (("cifar",), "write one of cifar10"),
        (("cifar10", tmp_path / "nowhere"), "does not exist"),
        (("cifar10", tmp_path), r"holds no cifar10: write --data-dir with cifar-10-binary\.tar\.gz"),
        (("cifar10", tmp_path / "file"), "damaged"),
        (("digits", tmp_path), "leave --data-dir away"),
        (("imagenet", tmp_path), "image-net.org"),
        (("imagenet",), "image-net.org"),
        (("folder",), "which folder"),
        (("folder", tmp_path / "file"), "is a file"),
        (("digits", None, True, 64), "32x32, not 64x64"),
    ):
        with pytest.raises(InputError, match=says) as error:
            load(*arguments)
        one_line(error)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("MLCPC_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert data.cache_folder() == tmp_path / "xdg" / "mlcpc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.cache_folder() == tmp_path / ".cache" / "mlcpc"


def test_images_refuse_what_they_are_not() -> None:
    pixels, labels = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
    for wrong in ((pixels.float(), labels), (pixels[:, :1], labels), (pixels, labels[:1]), (pixels, labels.int())):
        with pytest.raises(InputError, match=r"give (uint8|int64)"):
            Images(*wrong, ("a", "b"), "toy")
    with pytest.raises(InputError, match="must be 0 to 0"):
        Images(pixels, labels, ("a",), "toy")


def test_images_move_once() -> None:
    images = Images(torch.zeros(0, 3, 4, 4, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64), ("a",), "toy")
    assert images.to("cpu") is images
    moved = images.to("meta")
    assert moved is images.to("meta")
    assert moved.pixels.device.type == "meta"
