"""The slow twin of `mlcpc.augment`: PIL's operations in torchvision's law, drawn by Python's generator, one by one."""

import math
import random

import torch
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor

from mlcpc.augment import Augment


def to_pil(x: Tensor) -> Image.Image:
    return Image.fromarray(x.permute(1, 2, 0).contiguous().numpy())


def levels(image: Image.Image) -> Tensor:
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return flat.view(image.height, image.width, 3).permute(2, 0, 1).float()


def turned(image: Image.Image, by: float) -> Image.Image:
    """Hue by a share of the circle, as torchvision has it."""
    h, s, v = image.convert("HSV").split()
    h = h.point([(i + int(by * 255)) % 256 for i in range(256)])
    return Image.merge("HSV", (h, s, v)).convert("RGB")


def resized(image: Image.Image, left: float, top: float, w: float, h: float, size: int) -> Image.Image:
    return image.crop((left, top, left + w, top + h)).resize((size, size), Image.Resampling.BILINEAR)


ENHANCE = [
    lambda image, f: ImageEnhance.Brightness(image).enhance(f),
    lambda image, f: ImageEnhance.Contrast(image).enhance(f),
    lambda image, f: ImageEnhance.Color(image).enhance(f),
    turned,
]


class Twin:
    """The same settings, drawn anew by Python's generator."""

    def __init__(self, a: Augment, seed: int = 0) -> None:
        self.a, self.r = a, random.Random(seed)

    def resized_box(self, width: int, height: int) -> tuple[int, int, int, int]:
        a, r = self.a, self.r
        for _ in range(10):
            area = width * height * r.uniform(*a.scale)
            ratio = math.exp(r.uniform(math.log(a.ratio[0]), math.log(a.ratio[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                top = r.randint(0, height - h)
                return r.randint(0, width - w), top, w, h
        w, h = width, height
        if width / height < a.ratio[0]:
            h = round(w / a.ratio[0])
        elif width / height > a.ratio[1]:
            w = round(h * a.ratio[1])
        return (width - w) // 2, (height - h) // 2, w, h

    def crop(self, image: Image.Image) -> Image.Image:
        a, r = self.a, self.r
        if a.crop == "resized":
            left, top, w, h = self.resized_box(*image.size)
            return resized(image, left, top, w, h, a.size)
        left, top = (r.randint(0, side + 2 * a.padding - a.size) - a.padding for side in image.size)
        return image.crop((left, top, left + a.size, top + a.size))

    def __call__(self, image: Image.Image) -> Tensor:
        a, r = self.a, self.r
        image = self.crop(image)
        if r.random() < a.jitter_p:
            for i in r.sample(range(4), 4):
                strength = a.jitter[i]
                image = ENHANCE[i](image, r.uniform(-strength, strength) + (i < 3))
        if r.random() < a.grey:
            image = image.convert("L").convert("RGB")
        if r.random() < a.blur:
            image = image.filter(ImageFilter.GaussianBlur(r.uniform(*a.sigma)))
        if r.random() < a.flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return levels(image)
