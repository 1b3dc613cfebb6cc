"""Batches of augmented views. What is random about sample i comes from (key, view, i), not from turns or workers."""

import signal
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mlcpc.config import InputError
from mlcpc.data.images import Images
from mlcpc.data.photos import BrokenImageError, Files, Window, cut, left_out

__all__ = ["Augment", "Batch", "Loader", "Windowed"]

_GROUP = 1024
"""images in memory that are augmented in one call"""
_CHUNK = 32
"""images that a worker decodes at a time: the unit of work in flight, so that shared memory stays small"""


class Batch(NamedTuple):
    """Some samples, on the device."""

    images: Tensor
    """float (n, 3, h, w), or (n, views, 3, h, w) where there are several views"""
    labels: Tensor
    """int64 (n,)"""
    indices: Tensor
    """int64 (n,): rows of the data set"""


class Augment(Protocol):
    """From uint8 (n, 3, H, W) to normalised float (n, 3, h, w), random by (key, id)."""

    def __call__(self, pixels: Tensor, ids: Tensor, *key: int) -> Tensor: ...


class Windowed(Augment, Protocol):
    """An Augment in two parts, for images that differ in size: where to cut, then all the rest."""

    def window(self, width: int, height: int, id: int, *key: int) -> Window: ...  # noqa: A002 - the agreed name

    def rest(self, pixels: Tensor, ids: Tensor, *key: int) -> Tensor: ...


class Loader:
    """Batches of a data set.

    source   Images are augmented on the device; Files are decoded and cut by worker processes, the rest on the device
    views    augmented versions of each image
    workers  processes that decode; 0: this one does
    broken   "skip": files that do not decode are missing from their batch, with a warning at the end; "error": stop
    """

    def __init__(
        self, source: Images | Files, augment: Augment, views: int = 1, workers: int = 2, broken: str = "skip"
    ) -> None:
        if views < 1 or workers < 0:
            raise InputError(f"views is {views} and workers {workers}: write 1 or more, and 0 or more")
        if broken not in ("skip", "error"):
            raise InputError(f"broken is {broken!r}, which is not known: write one of skip, error")
        if isinstance(source, Files):
            _must_cut_to_one_size(augment, source.name)
        self.source, self.augment, self.views, self.workers, self.broken = source, augment, views, workers, broken

    def __len__(self) -> int:
        return len(self.source)

    def batches(self, order: Sequence[Tensor], device: torch.device | str, key: tuple[int, ...]) -> Iterator[Batch]:
        """A batch for each tensor of rows; `key` is (seed, epoch)."""
        if isinstance(self.source, Images):
            return self._from_memory(self.source, order, device, key)
        return self._from_files(self.source, order, torch.device(device), key)

    def whole(self, device: torch.device | str, batch: int = 500) -> Iterator[Batch]:
        """Every sample once, in order: for evaluation."""
        return self.batches(torch.split(torch.arange(len(self)), batch), device, (0,))

    def _from_memory(
        self, source: Images, order: Sequence[Tensor], device: torch.device | str, key: tuple[int, ...]
    ) -> Iterator[Batch]:
        source = source.to(device)
        for some in _grouped(order, _GROUP):
            rows = torch.cat(some)
            there = rows.to(source.device)
            pixels = source.pixels[there]
            views = _together([self.augment(pixels, rows.cpu(), *key, view) for view in range(self.views)])
            sizes = [len(rows) for rows in some]
            parts = (torch.split(part, sizes) for part in (views, source.labels[there], there))
            for images, labels, indices in zip(*parts, strict=True):
                yield Batch(images, labels, indices)

    def _from_files(
        self, source: Files, order: Sequence[Tensor], device: torch.device, key: tuple[int, ...]
    ) -> Iterator[Batch]:
        augment = cast(Windowed, self.augment)
        chunks = [piece.tolist() for rows in order for piece in torch.split(rows, _CHUNK)]
        ahead = -(-2 * max(map(len, order), default=1) // (_CHUNK * max(1, self.workers)))  # two batches
        work: Any = DataLoader(
            _Decode(source, augment, self.views, key, chunks),
            batch_size=None,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            worker_init_fn=_begin,
            prefetch_factor=max(2, ahead) if self.workers else None,
            pin_memory=device.type == "cuda",
        )
        decoded, problems = iter(work), dict[int, str]()
        for rows in order:
            parts, kept = [], []
            for _ in range(-(-len(rows) // _CHUNK)):
                pixels, good, bad = next(decoded)
                problems |= bad
                if bad and self.broken == "error":
                    left_out(problems, len(source), self.broken)
                kept += good
                if good:
                    parts.append(pixels.to(device, non_blocking=True))
            if not kept:
                raise InputError(f"no image of a batch can be read, first {problems[int(rows[0])]}")
            pixels, ids = torch.cat(parts, 1), torch.tensor(kept)
            views = [augment.rest(pixels[view], ids, *key, view) for view in range(self.views)]
            yield Batch(_together(views), source.labels[ids].to(device), ids.to(device))
        left_out(problems, len(source), self.broken)


class _Decode(Dataset[Any]):
    """What a worker does: item i is the i-th chunk of rows, as uint8 (views, n, 3, h, w)."""

    def __init__(
        self, source: Files, augment: Windowed, views: int, key: tuple[int, ...], chunks: list[list[int]]
    ) -> None:
        self.source, self.augment, self.views, self.key, self.chunks = source, augment, views, key, chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, number: int) -> tuple[Tensor, list[int], dict[int, str]]:
        squares, good, bad = [], [], {}
        for row in self.chunks[number]:
            try:
                squares.append(cut(self.source.paths[row], partial(self._windows, row)))
                good.append(row)
            except BrokenImageError as problem:
                bad[row] = str(problem)
        return torch.stack(squares, 1) if squares else torch.empty(0), good, bad

    def _windows(self, row: int, width: int, height: int) -> list[Window]:
        return [self.augment.window(width, height, row, *self.key, view) for view in range(self.views)]


def _must_cut_to_one_size(augment: Augment, name: str) -> None:
    """Of the smallest picture it takes a part, and makes it as large as any."""
    fits, why = False, ""
    if hasattr(augment, "window"):
        try:
            (left, top, w, h), size = cast(Windowed, augment).window(1, 1, 0, 0)
            fits = size > 0 and left >= 0 and top >= 0 and left + w <= 1 and top + h <= 1
        except InputError as error:
            why = f" ({error})"
    if not fits:
        raise InputError(
            f"{name} holds images of many sizes, which this augmentation does not cut to one{why}: "
            "use random_resized, moco_v2 or center, or load them with a size"
        )


def _grouped(order: Sequence[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Neighbouring batches, as many as have about `size` rows together: a call costs the same for few and for many."""
    some: list[Tensor] = []
    for rows in order:
        some.append(rows)
        if sum(map(len, some)) >= size:
            yield some
            some = []
    if some:
        yield some


def _together(views: list[Tensor]) -> Tensor:
    return views[0] if len(views) == 1 else torch.stack(views, 1)


def _as_it_is(item: Any) -> Any:
    return item


def _begin(worker: int) -> None:
    """Ctrl-C is for the main process, which may still want batches; SIGTERM ends a worker, whatever its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
