"""`mlcpc bounds`."""

import math
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from mlcpc.bounds import alpha_min, ceiling, is_lower_bound
from mlcpc.commands.shown import refusals

__all__ = ["Bounds"]


@dataclass(frozen=True)
class Bounds:
    """Which α? The valid range for m candidates and n pairs, and what each α can report at most."""

    m: int
    """candidates per row: one positive and m-1 negatives (the batch size, for in-batch negatives)"""
    n: int
    """pairs in the batch"""
    alpha: tuple[float, ...] = ()
    """further values to look at"""
    bits: bool = False
    """show bits instead of nats"""

    def __call__(self) -> int:
        with refusals():
            table = self._table()
        Console().print(table)
        return 0

    def _table(self) -> Table:
        lowest = alpha_min(self.m, self.n)
        table = Table(
            "α", f"ceiling ({'bits' if self.bits else 'nats'})", "ML-CPC is a lower bound", "CPC is a lower bound"
        )
        for alpha in sorted({lowest, min(1.0, self.m / 2), self.m / 2, *self.alpha}):
            top = ceiling(self.m, alpha) / (math.log(2) if self.bits else 1)
            words = ["yes" if is_lower_bound(alpha, self.m, self.n, name) else "no" for name in ("ml_cpc", "cpc")]
            table.add_row(f"{alpha!r}" + (" = α_{m,n}" if alpha == lowest else ""), f"{top:.3f}", *words)
        return table
