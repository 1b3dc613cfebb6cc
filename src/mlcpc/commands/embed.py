"""`mlcpc embed`: the features of a data set, in a file."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tyro

from mlcpc import data
from mlcpc.commands.shown import refusals
from mlcpc.config import InputError
from mlcpc.pretrain.run import features_of
from mlcpc.ranks import Ranks
from mlcpc.runs import Place, replacing

__all__ = ["Embed"]


@dataclass(frozen=True)
class Embed:
    """Features of images by a finished run's encoder, as .npz (features, labels, names, classes) or .parquet."""

    run: tyro.conf.Positional[Path]
    """the folder of a finished `mlcpc pretrain`, `train` or `distill`"""
    data: str = "folder"
    """a folder of images (or --data folder --data-dir FOLDER), or cifar10, cifar100, fashion-mnist, digits"""
    test: bool = False
    """the data set's test part instead of its training part"""
    out: Path = Path("features.npz")
    """where to; the ending, .npz or .parquet, says which kind"""
    size: int = 0
    """side that photographs are cut to; 0: as in training"""
    place: Place = field(default_factory=Place)

    def __call__(self) -> int:
        if self.out.suffix not in (".npz", ".parquet"):
            raise InputError(f"--out is {self.out}: give a name that ends in .npz or .parquet")
        with refusals():
            own = Path(self.data).is_dir()
            name, where = ("folder", Path(self.data)) if own else (self.data, self.place.data_dir)
            source = data.load(name, where, train=not self.test)
            features, labels = features_of(self.run, source, Ranks(self.place.device).device, size=self.size)
        names = [str(path) for path in source.paths] if isinstance(source, data.Files) else range(len(labels))
        table = features.cpu().numpy()
        if self.out.suffix == ".npz":
            with replacing(self.out) as temporary, temporary.open("wb") as file:
                np.savez_compressed(
                    file, features=table, labels=labels.cpu().numpy(), names=np.array(names), classes=source.classes
                )
        else:
            _write_parquet(self.out, table, labels.tolist(), list(names), source.classes)
        print(f"{len(table)} × {table.shape[1]} features in {self.out}")
        return 0


def _write_parquet(
    path: Path, table: np.ndarray, labels: list[int], names: list[object], classes: tuple[str, ...]
) -> None:
    """A row an image: name, label, class, f0, f1, …"""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as missing:
        raise InputError("parquet needs pyarrow: pip install 'mlcpc[parquet]', or write an .npz") from missing
    columns = {"name": names, "label": labels, "class": [classes[label] for label in labels]}
    columns |= {f"f{i}": column for i, column in enumerate(table.T)}
    with replacing(path) as temporary:
        parquet.write_table(pyarrow.table(columns), temporary)
