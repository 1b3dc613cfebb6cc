"""metrics.jsonl: what a run reports while it goes on."""

import json
from pathlib import Path
from typing import Any

from mlcpc.config import InputError
from mlcpc.runs import parse_json, write_text

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
        """Those that are whole."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        rows = map(parse_json, lines)
        return [row for row in rows if isinstance(row, dict) and "kind" in row and isinstance(row.get("step"), int)]

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
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in self.rows() if row["step"] <= step))
