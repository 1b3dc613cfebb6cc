"""Loaders: what is random about a sample comes from (key, view, id) alone; files as a full decode would give them."""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mlcpc import augment, draws
from mlcpc.config import InputError
from mlcpc.data import Batch, Files, Images, Loader, load
from mlcpc.data.photos import cut

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine's cores
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
CROP = augment.random_resized(MEAN, STD, 24)
MIDDLE = augment.center(MEAN, STD, 28, 24)


def smooth(width: int, height: int, seed: int) -> Image.Image:
    """A picture with large features, as photographs have."""
    small = torch.rand(1, 3, 5, 6, generator=torch.Generator().manual_seed(seed)) * 255
    large = torch.nn.functional.interpolate(small, (height, width), mode="bicubic").clamp(0, 255)
    return Image.fromarray(large[0].permute(1, 2, 0).to(torch.uint8).numpy())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes in train and val, of JPEG files of many sizes, and a PNG with a palette."""
    root = tmp_path_factory.mktemp("photos")
    for part, count in (("train", 20), ("val", 4)):
        for i in range(2 * count):
            folder = root / part / "ab"[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            smooth(60 + 7 * i, 50 + 11 * (i % 5), i).save(folder / f"{i:03d}.JPEG", quality=95)
    smooth(50, 70, 99).quantize(64).save(root / "train" / "b" / "zz.png", transparency=0)
    (root / "train" / ".hidden").mkdir()
    (root / "train" / "a" / "readme.txt").write_text("no image")
    return root


def files(root: Path, train: bool = True) -> Files:
    found = load("imagenet", root, train)
    assert isinstance(found, Files)
    return found


def together(batches: Iterator[Batch]) -> Batch:
    return Batch(*(torch.cat(parts) for parts in zip(*batches, strict=True)))


def order(n: int, size: int, seed: int = 0) -> list[Tensor]:
    return list(torch.split(draws.permutation(n, seed), size))


# --- in memory -----------------------------------------------------------------------------------------------------


@pytest.fixture
def images() -> Images:
    return Images(torch.randint(256, (20, 3, 32, 32), dtype=torch.uint8), torch.arange(20) % 3, ("a", "b", "c"), "toy")


def test_batches_in_memory_are_the_augmentation_of_their_rows(images: Images) -> None:
    recipe = augment.moco_cifar(MEAN, STD)
    rows = order(20, 8)
    found = list(Loader(images, recipe, views=2).batches(rows, "cpu", (3, 5)))
    assert [len(batch.labels) for batch in found] == [8, 8, 4]
    for batch, own in zip(found, rows, strict=True):
        assert torch.equal(batch.indices, own)
        assert torch.equal(batch.labels, images.labels[own])
        assert batch.images.shape == (len(own), 2, 3, 32, 32)
        for view in range(2):
            torch.testing.assert_close(batch.images[:, view], recipe(images.pixels[own], own, 3, 5, view))
    assert not torch.equal(found[0].images[:, 0], found[0].images[:, 1])


def test_a_sample_does_not_depend_on_its_batch_but_on_the_key(images: Images) -> None:
    loader = Loader(images, augment.crop_flip(MEAN, STD))
    one = together(loader.batches(order(20, 7), "cpu", (0, 1)))
    two = together(loader.batches(order(20, 20, seed=9), "cpu", (0, 1)))
    by_row = torch.argsort(one.indices), torch.argsort(two.indices)
    assert torch.equal(one.images[by_row[0]], two.images[by_row[1]])
    other = together(loader.batches(order(20, 7), "cpu", (0, 2)))
    assert not torch.equal(one.images, other.images)


def test_whole_is_everything_once_in_order(images: Images) -> None:
    found = together(Loader(images, augment.plain(MEAN, STD)).whole("cpu", 7))
    assert torch.equal(found.indices, torch.arange(20))
    torch.testing.assert_close(found.images, (images.pixels / 255 - 0.5) / 0.25)


def test_take_counts_rows_from_0(images: Images) -> None:
    rows = torch.tensor([7, 3])
    few = images.take(rows)
    assert torch.equal(few.pixels, images.pixels[rows])
    assert together(Loader(few, augment.plain(MEAN, STD)).whole("cpu")).indices.tolist() == [0, 1]
    assert len(images.take(100)) == 20


def test_arguments_that_are_wrong(images: Images, root: Path) -> None:
    for arguments, says in (
        ({"views": 0}, "views is 0"),
        ({"workers": -1}, "workers -1"),
        ({"broken": "ignore"}, "skip, error"),
    ):
        with pytest.raises(InputError, match=says):
            Loader(images, CROP, **arguments)
    for recipe in (augment.plain(MEAN, STD), augment.crop_flip(MEAN, STD), lambda pixels, ids, *key: pixels.float()):
        with pytest.raises(InputError, match="use random_resized") as error:
            Loader(files(root), recipe)
        assert "\n" not in str(error.value)


# --- from files ----------------------------------------------------------------------------------------------------


def test_class_folders(root: Path) -> None:
    train, val = files(root), files(root, train=False)
    assert (len(train), len(val), train.classes) == (41, 8, ("a", "b"))
    for path, label in zip(train.paths, train.labels.tolist(), strict=True):
        assert Path(path).parent.name == train.classes[label]
        assert Path(path).is_file()
    assert train.paths[-1].endswith("zz.png")
    assert list(train.take(3).paths) == train.paths[:3]


@pytest.mark.parametrize("recipe", [CROP, augment.moco_v2(MEAN, STD, 24), MIDDLE], ids=["crop", "moco", "middle"])
def test_workers_change_nothing(root: Path, recipe: augment.Augment) -> None:
    source, rows = files(root), order(41, 35)
    found = [together(Loader(source, recipe, 2, workers).batches(rows, "cpu", (1, 2))) for workers in (0, 1, 3)]
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert torch.equal(found[0].indices, torch.cat(rows))
    assert torch.equal(found[0].labels, source.labels[torch.cat(rows)])
    assert found[0].images.shape == (41, 2, 3, 24, 24)


def test_neither_batch_nor_number_of_views_changes_a_sample(root: Path) -> None:
    source = files(root)
    two = together(Loader(source, CROP, 2, 0).batches(order(41, 5), "cpu", (1, 2)))
    one = together(Loader(source, CROP, 1, 0).batches([two.indices], "cpu", (1, 2)))
    assert torch.equal(one.images, two.images[:, 0])
    other = together(Loader(source, CROP, 1, 0).batches([two.indices], "cpu", (1, 3)))
    assert (one.images - other.images).abs().mean() > 0.01


@pytest.mark.parametrize("recipe", [CROP, MIDDLE], ids=["crop", "middle"])
def test_a_streamed_sample_is_what_the_recipe_makes_of_the_whole_picture(root: Path, recipe: augment.Augment) -> None:
    """The slow twin decodes everything and lets the augmentation cut: JPEG's own scaling is all that differs."""
    source = files(root)
    found = together(Loader(source, recipe, 2, 0).batches([torch.arange(40)], "cpu", (4, 4)))
    for row, image in zip(found.indices, found.images, strict=True):
        picture = torch.from_numpy(np.array(Image.open(source.paths[int(row)]).convert("RGB"))).permute(2, 0, 1)[None]
        expected = torch.cat([recipe(picture, row[None], 4, 4, view) for view in range(2)])
        levels = (image - expected).abs() * 0.25 * 255
        assert levels.mean() < 1.5, source.paths[int(row)]
        assert levels.max() < 12


def test_a_jpeg_is_decoded_no_larger_than_a_window_needs(tmp_path: Path) -> None:
    path = str(tmp_path / "large.jpg")
    smooth(1600, 1200, 0).save(path, quality=90)
    windows = [((0, 0, 1600, 1200), 100), ((100, 50, 820, 900), 100), ((7, 9, 120, 130), 100)]
    squares = cut(path, lambda width, height: windows)
    for (box, size), square in zip(windows, squares, strict=True):
        left, top, w, h = box
        whole = Image.open(path).convert("RGB").crop((left, top, left + w, top + h)).resize((size, size), 2)
        far = np.abs(square.permute(1, 2, 0).numpy().astype(int) - np.array(whole).astype(int))
        assert far.mean() < 1
        assert far.max() <= 6
        assert torch.equal(cut(path, lambda width, height, one=(box, size): [one])[0], square), "alone or with others"


def test_whole_of_files(root: Path) -> None:
    found = together(Loader(files(root, train=False), MIDDLE).whole("cpu", 3))
    assert torch.equal(found.indices, torch.arange(8))


def test_in_memory_takes_the_middle_square(root: Path) -> None:
    source = files(root)
    small = source.in_memory(24)
    assert small.pixels.shape == (41, 3, 24, 24)
    assert torch.equal(small.labels, source.labels)
    with Image.open(source.paths[-1]) as image:  # 50×70, a palette
        expected = image.convert("RGBA").convert("RGB").resize((24, 24), Image.Resampling.BILINEAR, (0, 10, 50, 60))
    np.testing.assert_array_equal(small.pixels[-1].permute(1, 2, 0).numpy(), np.array(expected))
    assert torch.equal(load("imagenet", root, size=24).pixels, small.pixels)


def test_stopping_early_ends_the_workers(root: Path) -> None:
    import multiprocessing

    batches = Loader(files(root), CROP, 1, 2).batches(order(41, 4), "cpu", (0, 0))
    next(batches)
    assert multiprocessing.active_children()
    batches.close()
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_every_way_to_start_workers(root: Path, method: str) -> None:
    """Each in a process of its own: the method is a process's once and for all."""
    import subprocess
    import sys

    code = f"""
import multiprocessing, torch
from mlcpc import augment
from mlcpc.data import Loader, load
if __name__ == "__main__":
    multiprocessing.set_start_method({method!r})
    source, recipe = load("imagenet", {str(root)!r}), augment.moco_v2({MEAN}, {STD}, 24)
    one, two = ([b.images for b in Loader(source, recipe, 2, w).whole("cpu", 20)] for w in (0, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
"""
    script = root / f"{method}.py"
    script.write_text(code)
    subprocess.run([sys.executable, str(script)], check=True, timeout=300)


# --- what is broken ------------------------------------------------------------------------------------------------


def jpeg(size: int = 60) -> bytes:
    buffer = io.BytesIO()
    smooth(size, size, 1).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Six images, of which three are: cut off, no image, empty."""
    for part in ("train", "val"):
        (tmp_path / part / "a").mkdir(parents=True)
        for i in range(6):
            content = {1: jpeg()[:400], 3: b"no image at all", 4: b""}.get(i, jpeg()) if part == "train" else jpeg()
            (tmp_path / part / "a" / f"{i}.jpg").write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("workers", [0, 2])
def test_broken_images_are_left_out_and_counted(damaged: Path, workers: int) -> None:
    loader = Loader(files(damaged), CROP, 2, workers)
    with pytest.warns(UserWarning, match=r"^3 of 6 images cannot be read and are left out, first .*1\.jpg") as warned:
        found = together(loader.batches(list(torch.arange(6).split(4)), "cpu", (0, 0)))
    assert found.indices.tolist() == [0, 2, 5]
    assert found.images.shape == (3, 2, 3, 24, 24)
    assert "\n" not in str(warned[0].message)


@pytest.mark.parametrize("workers", [0, 2])
def test_broken_images_are_an_error_by_choice(damaged: Path, workers: int) -> None:
    loader = Loader(files(damaged), CROP, 1, workers, broken="error")
    with pytest.raises(InputError, match=r"cannot be read, first .*1\.jpg") as error:
        together(loader.batches([torch.arange(6)], "cpu", (0, 0)))
    assert "\n" not in str(error.value)


def test_a_batch_of_broken_images_is_an_error(damaged: Path) -> None:
    with pytest.raises(InputError, match=r"no image of a batch can be read, first .*3\.jpg"):
        together(Loader(files(damaged), CROP, 1, 0).batches([torch.tensor([3, 4])], "cpu", (0, 0)))


def test_broken_images_in_memory(damaged: Path) -> None:
    source = files(damaged)
    with pytest.warns(UserWarning, match="3 of 6"):
        assert len(source.in_memory(16)) == 3
    with pytest.raises(InputError, match="3 of 6"):
        source.in_memory(16, broken="error")
    with pytest.raises(InputError, match="1 of 1"):
        source.take(torch.tensor([3])).in_memory(16)


def test_16_bit_images_are_refused_not_turned_white(tmp_path: Path) -> None:
    Image.fromarray(np.full((30, 30), 3000, np.uint16)).save(tmp_path / "x.png")
    with pytest.raises(InputError, match="8 bits a channel"):
        load(str(tmp_path), size=16)


# --- folders -------------------------------------------------------------------------------------------------------


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    for name in ("x.jpg", "y.PNG"):
        smooth(40, 40, 0).save(tmp_path / name)
    flat = load("folder", tmp_path)
    assert (len(flat), flat.labels.tolist(), flat.classes) == (2, [0, 0], (tmp_path.name,))
    assert len(load(str(tmp_path))) == 2
    with pytest.raises(InputError, match="no part to test on"):
        load("folder", tmp_path, train=False)
    (tmp_path / "sub").mkdir()
    with pytest.raises(InputError, match="holds both images"):
        load("folder", tmp_path)
    for name in ("x.jpg", "y.PNG"):
        (tmp_path / name).rename(tmp_path / "sub" / name)
    assert load("folder", tmp_path).classes == ("sub",)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty holds no images"):
        load("folder", tmp_path)


def test_parts_with_different_classes_or_without_folders(root: Path, tmp_path: Path) -> None:
    for part, names in (("train", "ab"), ("val", "a")):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            (tmp_path / part / name / "x.jpg").write_bytes(jpeg())
    for name in ("imagenet", "folder"):
        with pytest.raises(InputError, match="differ in 1 class folders, first b"):
            load(name, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tmp_path / "val" / "b").mkdir()
        assert len(load("imagenet", tmp_path)) == 2
