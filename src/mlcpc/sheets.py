"""Sheets of small pictures: what augmentation does, what lies nearest to what."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mlcpc.runs import replacing

__all__ = ["contact_sheet", "sheet"]

_GAP = 2  # pixels of white between pictures
_FIRST = 8  # and after the first column, which is what the others came from


def sheet(rows: Sequence[Sequence[Tensor]], path: str | Path, scale: int = 4, gap: int = _FIRST) -> Path:
    """Rows of uint8 pictures (3, h, w) as one PNG, each picture `scale` times its size; `gap` follows the first."""
    from PIL import Image

    height = max(picture.shape[1] for row in rows for picture in row) * scale + _GAP
    width = max(picture.shape[2] for row in rows for picture in row) * scale + _GAP
    columns = max(len(row) for row in rows)
    page = Image.new("RGB", (columns * width + gap + _GAP, len(rows) * height + _GAP), "white")
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            one = Image.fromarray(picture.cpu().permute(1, 2, 0).contiguous().numpy())
            large = one.resize((one.width * scale, one.height * scale), Image.Resampling.NEAREST)
            page.paste(large, (_GAP + j * width + (gap if j else 0), _GAP + i * height))
    path = Path(path)
    kind = Image.registered_extensions().get(path.suffix.lower(), "PNG")
    with replacing(path) as temporary:
        page.save(temporary, format=kind)
    return path


def contact_sheet(
    source_pixels: Tensor,
    augment: Callable[..., Tensor],
    views: int,
    mean: Sequence[float],
    std: Sequence[float],
    path: str | Path,
    scale: int = 4,
    seed: int = 0,
) -> Path:
    """Originals (n, 3, H, W) in the first column, then `views` of each as the first epoch of run `seed` draws them."""
    ids = torch.arange(len(source_pixels), device=source_pixels.device)
    pictures = [augment(source_pixels, ids, seed, 0, view) for view in range(views)]
    rows = zip(source_pixels, *(_pixels(x, mean, std) for x in pictures), strict=True)
    return sheet([list(row) for row in rows], path, scale)


def _pixels(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Undoes normalisation."""
    m, s = (torch.tensor(part, device=x.device)[:, None, None] for part in (mean, std))
    return ((x * s + m) * 255).round().clamp(0, 255).to(torch.uint8)
