"""Augmentation against a twin that is made of PIL's operations and draws by torchvision's law, image by image."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from PIL import Image, ImageFilter
from torch import Tensor

from mlcpc import draws
from mlcpc.augment import Augment, center, crop_flip, moco_cifar, moco_v2, plain, random_resized
from mlcpc.augment.colour import Jitter
from mlcpc.config import InputError
from mlcpc.sheets import contact_sheet
from pil_twin import ENHANCE, Twin, levels, resized, to_pil

ZERO, ONE = (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)  # normalised by these, a picture is in levels 0–255
MEAN, STD = (0.49, 0.48, 0.45), (0.20, 0.19, 0.21)
N = 3000
CRITICAL = 1.358 * (2 / N) ** 0.5  # Kolmogorov–Smirnov, two samples of N, 5 %
RECIPES = {
    "plain": plain(MEAN, STD),
    "crop_flip": crop_flip(MEAN, STD),
    "moco_cifar": moco_cifar(MEAN, STD),
    "moco_v2": moco_v2(MEAN, STD, 48),
    "random_resized": random_resized(MEAN, STD, 24),
    "center": center(MEAN, STD, 28, 20),
}


def scenes(n: int, width: int = 32, height: int = 32, seed: int = 0) -> Tensor:
    """Soft warm colours (so that a turn of hue shows), a sharp rectangle, a little noise."""
    g = torch.Generator().manual_seed(seed)
    warm = torch.tensor([220.0, 160.0, 90.0])[:, None, None]
    coarse = torch.rand(n, 3, 4, 4, generator=g) * warm + 35 * torch.rand(n, 3, 1, 1, generator=g)
    x = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    for picture, (a, b, c) in zip(x, torch.rand(n, 3, generator=g).tolist(), strict=True):
        colour = torch.rand(3, 1, 1, generator=g) * (warm + 35)
        picture[:, int(a * height) :, int(b * width) : int((b + c) * width)] = colour
    return (x + 8 * torch.randn(x.shape, generator=g)).round().clamp(0, 255).to(torch.uint8)


def in_levels(a: Augment) -> Augment:
    return replace(a, mean=ZERO, std=ONE)


def statistics(x: Tensor) -> dict[str, Tensor]:
    """Of pictures in levels: what their colours are like, one number each."""
    red, green, blue = x.flatten(2).mean(2).T
    grey = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    return {
        "red": red,
        "green": green,
        "blue": blue,
        "contrast": grey.flatten(1).std(1),
        "hue": torch.atan2(3**0.5 * (green - blue), 2 * red - green - blue),
        "chroma": (x.amax(1) - x.amin(1)).flatten(1).mean(1),
    }


def distance(a: Tensor, b: Tensor) -> float:
    """Kolmogorov–Smirnov's, between samples that may have ties."""
    both = torch.cat([a, b])
    shares = [torch.searchsorted(x.sort().values, both, right=True) / len(x) for x in (a, b)]
    return float((shares[0] - shares[1]).abs().max())


def far(a: Augment, twin: Augment, times: int = 1) -> dict[str, float]:
    """Distances of `a` to PIL's `twin` on the same pictures, the median of `times`, where above the critical value."""
    pictures, found = scenes(N), []
    for i in range(times):
        law = Twin(twin, seed=i)
        ours = statistics(in_levels(a)(pictures, torch.arange(N), i, 0, 0))
        pil = statistics(torch.stack([law(to_pil(x)) for x in pictures]))
        found.append({name: distance(ours[name], pil[name]) for name in ours})
    return {name: d for name in found[0] if (d := median(each[name] for each in found)) > CRITICAL}


@pytest.mark.parametrize("name", ["crop_flip", "moco_cifar", "moco_v2", "random_resized"])
def test_same_law_as_pil(name: str) -> None:
    """Three times: PIL itself is above the critical value of 5 % once in twenty."""
    assert far(RECIPES[name], RECIPES[name], times=3) == {}


@pytest.mark.parametrize(
    ("change", "told_by"),
    [
        ({"scale": (0.5, 1.0)}, "contrast"),
        ({"jitter": (0.4, 0.4, 0.4, 0.0)}, "hue"),
        ({"jitter": (0.4, 0.4, 0.1, 0.1)}, "chroma"),
        ({"grey": 0.1}, "chroma"),
        ({"jitter": (0.1, 0.4, 0.4, 0.1)}, "red"),
    ],
)
def test_another_law_is_told_apart(change: dict[str, Any], told_by: str) -> None:
    """So that the test before can fail."""
    cifar = moco_cifar(MEAN, STD)
    assert told_by in far(replace(cifar, **change), cifar)


@pytest.mark.parametrize(("width", "height"), [(32, 32), (90, 41), (20, 30), (300, 20)])
@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.9, 1.0)])
def test_boxes_of_resized_crops_have_torchvisions_law(width: int, height: int, scale: tuple[float, float]) -> None:
    a, count = Augment(MEAN, STD, "resized", 32, scale=scale), 20_000
    law = Twin(a, 1)
    ours = a.boxes(width, height, torch.arange(count), 0)[0]
    theirs = torch.tensor([law.resized_box(width, height) for _ in range(count)], dtype=torch.double)
    for name in (0, 1, 2, 3, [0, 1], [2, 3]):  # 0.1 % critical value: there are 48 of these
        pair = [x[:, name] if isinstance(name, int) else x[:, name].sum(1) for x in (ours, theirs)]
        assert distance(*pair) < 1.95 * (2 / count) ** 0.5


def test_a_crop_that_never_fits_is_taken_from_the_centre() -> None:
    a = Augment(MEAN, STD, "resized", 32, scale=(1.0, 1.0))
    assert a.window(400, 10, 3, 0) == ((193, 0, 13, 10), 32)
    assert a.window(10, 400, 3, 0) == ((0, 193, 10, 13), 32)


def test_colour_is_drawn_as_torchvision_draws() -> None:
    a, n = moco_cifar(MEAN, STD), 48_000
    colour = Jitter.draw(draws.uniform(torch.arange(n), 9, 0), a.jitter, a.jitter_p)
    jittered = colour.when < 4
    assert abs(jittered.float().mean() - 0.8) < 4 * (0.16 / n) ** 0.5
    orders = Counter(map(tuple, order_of(colour)[jittered].tolist()))
    expected = int(jittered.sum()) / 24
    assert len(orders) == 24
    assert sum((seen - expected) ** 2 / expected for seen in orders.values()) < 49.7  # χ², 23 degrees, 0.1 %
    uniform = (torch.arange(n) + 0.5) / n * 2 - 1
    for op in range(3):
        where = order_of(colour).where(order_of(colour) < 3, -1)
        f = colour.f[(where[where >= 0].view(n, 3)) == op]
        assert distance(f, 1 + 0.4 * uniform) < 1.95 * (2 / n) ** 0.5
    assert distance(colour.turn, (25.5 * uniform).trunc()) < 1.95 * (2 / n) ** 0.5
    assert (
        torch.corrcoef(torch.stack([*colour.f.T, colour.turn, colour.when.float()])).fill_diagonal_(0).abs().max()
        < 0.02
    )


def order_of(colour: Jitter) -> Tensor:
    """(n, 4): 0 brightness, 1 contrast, 2 saturation, 3 hue, read off the three slots."""
    linear = (colour.m != 0).long() + 2 * (colour.g != 0).long()
    rows = []
    for slots, when in zip(linear.tolist(), colour.when.clamp(max=3).tolist(), strict=True):
        rows.append([*slots[:when], 3, *slots[when:]])
    return torch.tensor(rows)


def test_colour_is_pils_with_the_same_parameters() -> None:
    """Level for level; where a fraction is all but whole, one level may become a few on the way."""
    a, pictures, ids = moco_cifar(ZERO, ONE), scenes(300), torch.arange(300)
    a = replace(a, crop="none", flip=0.0)
    colour = Jitter.draw(draws.uniform(ids, 9, 5, "jitter"), a.jitter, a.jitter_p)
    ours, theirs = a(pictures, ids, 5), []
    grey = (ours.amax(1) - ours.amin(1)).flatten(1).amax(1) < 1e-3
    assert 30 < grey.sum() < 90
    for i, order in enumerate(order_of(colour).tolist()):
        image, factors = to_pil(pictures[i]), iter(colour.f[i].tolist())
        for op in order if colour.when[i] < 4 else []:
            image = ENHANCE[op](image, float(colour.turn[i]) / 254.99 if op == 3 else next(factors))
        theirs.append(levels(image.convert("L").convert("RGB") if grey[i] else image))
    off = (ours - torch.stack(theirs)).abs()
    assert off.mean() < 0.02
    assert (off > 1.01).float().mean() < 0.003
    assert off.max() < 16


@pytest.mark.parametrize(("width", "height"), [(32, 32), (96, 70), (40, 200)])
@pytest.mark.parametrize("name", ["random_resized", "moco_cifar"])
def test_geometry_is_pils_within_two_levels(name: str, width: int, height: int) -> None:
    """Enlarged and, antialiased, made smaller."""
    a, pictures, ids = in_levels(RECIPES[name]), scenes(40, width, height), torch.arange(40)
    a = replace(a, jitter_p=0.0, grey=0.0, flip=0.0)
    for picture, i, ours in zip(pictures, ids.tolist(), a(pictures, ids, 3), strict=True):
        (left, top, w, h), size = a.window(width, height, i, 3)
        assert (ours - levels(resized(to_pil(picture), left, top, w, h, size))).abs().max() <= 2


def test_the_centre_is_pils_within_two_levels() -> None:
    for width, height in ((50, 37), (37, 50), (28, 28), (31, 90)):
        pictures = scenes(10, width, height)
        ours = center(ZERO, ONE, 28, 20)(pictures, torch.arange(10), 0)
        for x, picture in zip(ours, pictures, strict=True):
            short = min(width, height)
            w, h = int(28 * width / short), int(28 * height / short)
            left, top = round((w - 20) / 2), round((h - 20) / 2)
            image = to_pil(picture).resize((w, h), Image.Resampling.BILINEAR).crop((left, top, left + 20, top + 20))
            assert (x - levels(image)).abs().max() <= 2


def test_padded_crops_are_windows_of_the_picture_with_zeros_around_it() -> None:
    a, pictures = crop_flip(ZERO, ONE), scenes(400)
    windows = (
        torch.nn.functional.pad(pictures, (4, 4, 4, 4)).unfold(2, 32, 1).unfold(3, 32, 1).permute(0, 2, 3, 1, 4, 5)
    )
    seen = Counter()
    for x, candidates in zip(a(pictures, torch.arange(400), 0).round(), windows.flatten(1, 2), strict=True):
        for mirrored in (False, True):
            same = ((x.flip(2) if mirrored else x) == candidates).flatten(1).all(1)
            seen.update((mirrored, int(place)) for place in same.nonzero())
    assert sum(seen.values()) == 400
    assert len({place for _, place in seen}) > 75
    assert 160 < sum(count for (mirrored, _), count in seen.items() if mirrored) < 240


@pytest.mark.parametrize("sigma", [0.1, 0.4, 0.8, 1.3, 1.5, 2.0, 4.7])
def test_blur_is_pils(sigma: float) -> None:
    """Within the half level that PIL rounds away in each of its six passes."""
    a, pictures = Augment(ZERO, ONE, blur=1.0, sigma=(sigma, sigma)), scenes(10, 32, 40)
    for ours, picture in zip(a(pictures, torch.arange(10), 0), pictures, strict=True):
        off = (ours - levels(to_pil(picture).filter(ImageFilter.GaussianBlur(sigma)))).abs()
        assert off.max() <= 3
        assert off.mean() < 1


@pytest.mark.parametrize("name", RECIPES)
def test_a_picture_depends_on_key_and_id_alone(name: str) -> None:
    a, pictures = RECIPES[name], scenes(100)
    ids = torch.arange(100) * 7
    everything = a(pictures, ids, 0, 3, 1)
    order = torch.randperm(100)
    assert torch.equal(a(pictures[order], ids[order], 0, 3, 1), everything[order])
    parts = [a(pictures[rows], ids[rows], 0, 3, 1) for rows in order.split(9)]
    assert torch.equal(torch.cat(parts), everything[order])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(a(pictures, ids, 0, 3, 1), everything)
    if name not in ("plain", "center"):
        for key in ((1, 3, 1), (0, 4, 1), (0, 3, 0)):
            same = (a(pictures, ids, *key) == everything).flatten(1).all(1)
            assert same.float().mean() < 0.1
        assert not torch.equal(
            a(pictures[:1].expand(100, -1, -1, -1), ids, 0), a(pictures[:1], ids[:1], 0).expand(100, -1, -1, -1)
        )


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "plain"])
def test_window_and_rest_are_the_whole_in_two_parts(name: str) -> None:
    a, pictures, ids = RECIPES[name], scenes(60), torch.arange(60)
    cut = []
    for picture, i in zip(pictures, ids.tolist(), strict=True):
        (left, top, w, h), size = a.window(32, 32, i, 2, 1)
        if name == "center":
            image = to_pil(picture).resize((size, size), Image.Resampling.BILINEAR, (left, top, left + w, top + h))
        else:
            image = resized(to_pil(picture), left, top, w, h, size)
        cut.append(levels(image).to(torch.uint8))
    off = (a.rest(torch.stack(cut), ids, 2, 1) - a(pictures, ids, 2, 1)).abs() * 255 * min(STD)
    assert off.mean() < 0.6
    assert off.max() < 20  # one level before a turn of hue can be many after


def test_normalised_as_asked() -> None:
    pictures = scenes(5)
    x = plain(MEAN, STD)(pictures, torch.arange(5))
    assert x.dtype == torch.float32
    expected = (pictures.double() / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    assert (x - expected).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: crop_flip(MEAN, STD)(scenes(2).float(), torch.arange(2)), "give uint8"),
        (lambda: crop_flip(MEAN, STD)(scenes(2), torch.arange(3)), "one whole number each"),
        (lambda: crop_flip(MEAN, STD, 64)(scenes(2), torch.arange(2)), "smaller than size=64"),
        (lambda: center(MEAN, STD, 20, 30)(scenes(2), torch.arange(2)), "write resize=30 or more"),
        (lambda: Augment(MEAN, STD, "random"), "write one of none, padded, resized, centre"),
        (lambda: Augment(MEAN, STD, "padded"), "such as 32"),
        (lambda: plain(MEAN, STD).window(30, 20, 0), "needs a crop"),
    ],
)
def test_errors_say_what_to_write(wrong: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        wrong()  # type: ignore[operator]


def test_an_empty_batch_stays_empty() -> None:
    assert moco_v2(MEAN, STD, 16)(scenes(0), torch.arange(0)).shape == (0, 3, 16, 16)


def test_contact_sheet_shows_originals_and_views(tmp_path: Path) -> None:
    pictures = scenes(3)
    path = contact_sheet(pictures, plain(MEAN, STD), 2, MEAN, STD, tmp_path / "a" / "sheet.png", scale=2)
    with Image.open(path) as image:
        x = levels(image.convert("RGB"))
    assert x.shape[1:] == (3 * 66 + 2, 3 * 66 + 8 + 2)
    for row in range(3):
        for column in range(3):
            left, top = 2 + column * 66 + (8 if column else 0), 2 + row * 66
            assert torch.equal(x[:, top : top + 64 : 2, left : left + 64 : 2], pictures[row].float())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", RECIPES)
def test_a_gpu_makes_the_same_pictures(name: str) -> None:
    """But for a level rounded the other way here and there."""
    a, pictures, ids = RECIPES[name], scenes(300), torch.arange(300)
    x = a(pictures.cuda(), ids.cuda(), 1, 2, 0)
    assert x.is_cuda
    off = (x.cpu() - a(pictures, ids, 1, 2, 0)).abs() * 255 * min(STD)
    assert off.mean() < 0.02
    assert (off > 1.01).float().mean() < 0.003
