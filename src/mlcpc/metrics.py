"""metrics.jsonl: what a run reports while it goes on."""

import json
from pathlib import Path
from typing import Any

from mlcpc.config import InputError
from mlcpc.runs import write_text

__all__ = ["Metrics"]


class Metrics:
    """metrics.jsonl: a line for each logged step and each epoch."""

    def __init__(self, folder: Path, tensorboard: bool, writes: bool) -> None:
        self.path, self.writes = folder / "metrics.jsonl", writes
        folder.mkdir(parents=True, exist_ok=True)
        self.board: Any = None
        if tensorboard and writes:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as missing:
                raise InputError("TensorBoard is not installed: pip install tensorboard, or leave it out") from missing
            self.board = SummaryWriter(str(folder / "tensorboard"))

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def epochs(self) -> list[dict[str, Any]]:
        """The lines at the ends of epochs; none on a rank that does not write."""
        return [row for row in self.rows() if row["kind"] == "epoch"] if self.writes else []

    def write(self, row: dict[str, Any]) -> None:
        if not self.writes:
            return
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if self.board is not None:
            for name, value in row.items():
                if isinstance(value, float):
                    self.board.add_scalar(name, value, row["step"])
            self.board.flush()

    def forget_after(self, step: int) -> None:
        """A resumed run writes the lines after its checkpoint again; the last one may be half a line."""
        if not self.writes or not self.path.exists():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            try:
                known = json.loads(line)["step"] <= step
            except (ValueError, KeyError):
                known = False
            if known:
                kept.append(line + "\n")
        write_text(self.path, "".join(kept))
