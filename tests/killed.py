"""What tests/test_loop.py runs: `python killed.py FOLDER WORLD KILLS`.

Forks a run of `fit` on WORLD ranks, then KILLS runs in each of which one rank dies by SIGKILL somewhere, and which are
then resumed, and asks whether each ends as the first one did, bit for bit.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mlcpc import ContrastiveLoss, Queue, loop
from mlcpc.loop import fit
from mlcpc.plan import Plan, Progress, cosine
from mlcpc.queues import MemoryBank
from mlcpc.ranks import Ranks

SAMPLES, DIM = 50, 6
#: Where a process may die: before the n-th call of one of these.
PLACES = {"loss": 30, "after_step": 30, "evaluate": 3, "save_newest": 6, "fsync": 12}


class Pairs(NamedTuple):
    x: Tensor
    y: Tensor
    indices: Tensor


class Data:
    def __init__(self) -> None:
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(SAMPLES, DIM, generator=g)
        self.y = self.x + 0.3 * torch.randn(SAMPLES, DIM, generator=g)

    def __len__(self) -> int:
        return SAMPLES

    def batches(self, order: list[Tensor], device: Any, key: tuple[int, ...]) -> Any:
        for rows in order:
            yield Pairs(self.x[rows], self.y[rows], rows)


class Toy:
    """Dropout, batch normalisation, a queue, a bank and a schedule: everything that a resume could forget."""

    def __init__(self, ranks: Ranks) -> None:
        torch.manual_seed(0)
        self.ranks = ranks
        net = nn.Sequential(nn.Linear(DIM, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 4))
        self.parts = nn.ModuleDict(
            {"net": net, "queue": Queue(33, 4, random_start=True), "bank": MemoryBank(SAMPLES, 4)}
        )
        self.criterion = ContrastiveLoss("ml_cpc", alpha="10:0.1", temperature=0.5, group=ranks.group)
        self.optimizer = torch.optim.AdamW(self.parts.parameters(), 1e-2)

    def loss(self, batch: Pairs, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        self.criterion.progress = at.fraction
        net = self.parts["net"].train()
        self.y = net(batch.y)
        pull = (net(batch.x) - self.parts["bank"].vectors[batch.indices]).square().mean() * at.weight
        return self.criterion(net(batch.x), self.y, self.parts["queue"].keys()) + pull, {"pull": pull.detach()}

    def after_step(self, batch: Pairs, at: Progress) -> None:
        y = self.y.detach()
        self.parts["queue"].update(y, group=self.ranks.group)
        self.parts["bank"].update(batch.indices, y, group=self.ranks.group)

    def evaluate(self, at: Progress) -> dict[str, float]:
        with torch.no_grad():
            return {"size": self.parts["net"].eval()(Data().x).square().mean().item()}


def run(folder: Path, rank: int, world: int, death: tuple[str, int] | None) -> None:
    """In a forked process: train, and die at `death`; the first rank writes what it ended with."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    with Ranks("cpu") as ranks:
        learner = Toy(ranks)
        if death is not None:
            place, calls = death
            owner: Any = {"save_newest": loop, "fsync": os}.get(place, learner)
            original, left = getattr(owner, place), [calls]

            def dying(*arguments: Any, **named: Any) -> Any:
                left[0] -= 1
                if left[0] <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*arguments, **named)

            setattr(owner, place, dying)
        plan = Plan(epochs=3, batch=5, seed=1, checkpoint_seconds=0.0, log_every=4)
        rows = fit(learner, Data(), plan, cosine(1e-2, per_step=True), folder, ranks)
        if rank == 0:
            digest = hashlib.sha256()
            for name, tensor in learner.parts.state_dict().items():
                digest.update(name.encode() + tensor.numpy().tobytes())
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            for row in [*rows, *lines]:
                del row["seconds"]
            digest.update(json.dumps([rows, lines]).encode())
            (folder / "end").write_text(digest.hexdigest())


def attempt(folder: Path, world: int, port: int, who: int = -1, death: tuple[str, int] | None = None) -> bool:
    """Whether all ranks ended well; when one dies the others are killed, as torchrun would."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    children = {}
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(folder, rank, world, death if rank == who else None)
                code = 0
            finally:
                os._exit(code)
        children[child] = rank
    well = True
    while children:
        child, status = os.wait()
        children.pop(child)
        well &= status == 0
        if status != 0:
            for other in children:
                os.kill(other, signal.SIGKILL)
    return well


def main(folder: Path, world: int, kills: int) -> None:
    port = 20000 + os.getpid() % 20000
    assert attempt(folder / "whole", world, port)
    wanted = (folder / "whole" / "end").read_text()
    chance = random.Random(world)
    died = 0
    for i in range(kills):
        place = list(PLACES)[i % len(PLACES)]
        death = (place, chance.randint(1, PLACES[place]))
        who = 0 if place in ("save_newest", "fsync") else chance.randrange(world)
        died += not attempt(folder / str(i), world, port + 2 * i + 1, who, death)
        started = time.monotonic()
        assert attempt(folder / str(i), world, port + 2 * i + 2), f"not resumed after death at {death}"
        assert (folder / str(i) / "end").read_text() == wanted, f"another end after death at {death} of rank {who}"
        left = [path.name for path in (folder / str(i)).iterdir() if path.name.startswith(".")]
        assert not left, f"left behind: {left}"
        print(f"rank {who} died at {death}: resumed, {time.monotonic() - started:.1f} s", flush=True)
    assert died >= kills * 0.8, f"only {died} of {kills} died"
    print("all ended alike")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
