"""Data sets by name: in memory as one uint8 tensor, or streamed from image files; batches for `mlcpc.loop.fit`."""

from mlcpc.data.download import cache_folder
from mlcpc.data.images import STATISTICS, Images
from mlcpc.data.loader import Batch, Loader
from mlcpc.data.named import DATASETS, load
from mlcpc.data.photos import Files

__all__ = ["DATASETS", "STATISTICS", "Batch", "Files", "Images", "Loader", "cache_folder", "load"]
