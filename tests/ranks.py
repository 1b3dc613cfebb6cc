"""What every rank of tests/test_distributed.py runs: `python ranks.py RANK WORLD FOLDER`."""

import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mlcpc import ContrastiveLoss, Queue, contrastive_loss, cpc, loss, ml_cpc, paired
from mlcpc.queues import MemoryBank

COUNTS = {1: [7], 2: [4, 3], 3: [1, 4, 2], 4: [2, 1, 3, 1]}
N, D = 7, 5


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


IDS = torch.tensor([0, 1, 2, 1, 3, 0, 4])
LABELS = torch.tensor([0, 1, 0, 1, 2, 2, 0])
QUEUE, QUEUE_IDS = draw(9, D, seed=3), torch.tensor([0, 1, 2, 3, 5, 5, 6, 1, 0])
CHOSEN = torch.arange(42).view(7, 6) % 9
#: Per source: what is the same on all ranks, what is split by rows, and what is each rank's own part.
SOURCES: dict[str, tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]] = {
    "in-batch": ({}, {}, {}),
    "in-batch ids": ({}, {"ids": IDS}, {}),
    "symmetric": ({"layout": "symmetric"}, {}, {}),
    "symmetric ids": ({"layout": "symmetric"}, {"ids": IDS}, {}),
    "two-view": ({"layout": "two-view"}, {}, {}),
    "two-view ids": ({"layout": "two-view"}, {"ids": IDS}, {}),
    "queue": ({"negatives": QUEUE}, {}, {}),
    "queue and in-batch": ({"negatives": QUEUE, "in_batch": True}, {}, {}),
    "queue ids": ({"negatives": QUEUE, "negative_ids": QUEUE_IDS}, {"ids": IDS}, {}),
    "queue and in-batch ids": ({"negatives": QUEUE, "negative_ids": QUEUE_IDS, "in_batch": True}, {"ids": IDS}, {}),
    "per anchor": ({}, {"negatives": draw(N, 6, D, seed=4)}, {}),
    "per anchor ids": ({}, {"negatives": draw(N, 6, D, seed=4), "negative_ids": CHOSEN[:, :6] % 6, "ids": IDS}, {}),
    "bank": ({"negatives": QUEUE}, {"indices": CHOSEN}, {}),
    "bank ids": ({"negatives": QUEUE, "negative_ids": QUEUE_IDS}, {"indices": CHOSEN, "ids": IDS}, {}),
    "labels": ({}, {"labels": LABELS}, {}),
    "labels of one set": ({"keys": None}, {"labels": LABELS}, {}),
    "labels two-view": ({"layout": "two-view"}, {"labels": LABELS}, {}),
    "labels symmetric": ({"layout": "symmetric"}, {"labels": LABELS}, {}),
    "learnt negatives": ({}, {}, {"negatives": draw(8, D, seed=5)}),
    "learnt negatives and in-batch": ({"in_batch": True}, {}, {"negatives": draw(8, D, seed=5)}),
    "learnt negatives and ids": (
        {"in_batch": True},
        {"ids": IDS},
        {"negatives": draw(8, D, seed=5), "negative_ids": QUEUE_IDS[:8]},
    ),
}


def main(rank: int, world: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    counts = COUNTS[world]
    start = sum(counts[:rank])
    rows = slice(start, start + counts[rank])
    extra = slice(rank * 8 // world, (rank + 1) * 8 // world)
    for source, (same, split, own) in SOURCES.items():
        for objective in ("cpc", "ml_cpc"):
            for engine in ("tiled", "dense"):
                settings = {"objective": objective, "engine": engine, "alpha": 0.4}
                mine = {k: v[rows] for k, v in split.items()} | {k: v[extra] for k, v in own.items()}
                got = step(rows, extra, {**settings, **same, **mine}, dist.group.WORLD)
                wanted = step(slice(None), slice(None), {**settings, **same, **split, **own}, None)
                compare(f"{source} {objective} {engine} on rank {rank} of {world}", got, wanted)
    scores_of_ones_own(rows)
    with_ddp(rank, rows)
    stores(rows)
    dist.barrier()
    dist.destroy_process_group()
    print("all equal", flush=True)
    os._exit(0)  # gloo's threads sometimes abort the interpreter's own exit ("terminate called without …"); done anyway


def step(rows: slice, extra: slice, arguments: dict[str, Any], group: Any) -> dict[str, Tensor]:
    """One loss and the parameters' gradients, averaged over ranks as DDP does."""
    torch.manual_seed(0)
    f, g, h = (nn.Linear(D, D).double() for _ in range(3))
    if (
        "negatives" in arguments
        and len(arguments["negatives"]) == len(draw(8, D)[extra])
        and arguments["negatives"].ndim == 2
    ):
        arguments = arguments | {"negatives": h(arguments["negatives"])}
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    arguments = {"keys": g(draw(N, D, seed=2)[rows]), "temperature": temperature} | arguments
    result = contrastive_loss(f(draw(N, D, seed=1)[rows]), group=group, details=True, **arguments)
    result.loss.backward()
    numbers = [result.estimate, result.ceiling] + [x for x in (result.accuracy, result.joint) if x is not None]
    out = {"loss": result.loss.detach(), "numbers": torch.tensor(numbers)}
    parameters = [(f"{net}{i}", p) for net, m in (("f", f), ("g", g), ("h", h)) for i, p in enumerate(m.parameters())]
    for name, p in [*parameters, ("temperature", temperature)]:
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        if group is not None:
            dist.all_reduce(grad)
            grad /= dist.get_world_size()
        out[name] = grad
    return out


def compare(what: str, got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    for key in wanted:
        torch.testing.assert_close(
            got[key], wanted[key], rtol=1e-10, atol=1e-11, msg=lambda m, key=key: f"{what}, {key}: {m}"
        )


def scores_of_ones_own(rows: slice) -> None:
    """The objectives themselves, on explicit negatives."""
    for name, objective in (("cpc", cpc), ("ml_cpc", ml_cpc)):
        values = []
        for part, group in ((rows, dist.group.WORLD), (slice(None), None)):
            weight = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
            s = paired(draw(N, seed=6)[part] * weight, draw(N, 4, seed=7)[part] * weight)
            value = loss(s, name, 0.3, group=group)
            value.backward()
            grad = weight.grad.clone()
            if group is not None:
                dist.all_reduce(grad)
                grad /= dist.get_world_size()
            values.append({"loss": value.detach(), "grad": grad, "estimate": objective(s, 0.3, group=group).detach()})
        compare(name, *values)


def with_ddp(rank: int, rows: slice) -> None:
    """The real DistributedDataParallel, two optimiser steps."""
    results = []
    for part, group in ((rows, dist.group.WORLD), (slice(None), None)):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, D)).double()
        model = net if group is None else DistributedDataParallel(net)
        criterion = ContrastiveLoss("ml_cpc", 0.2, 0.5, group=group)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            value = criterion(model(draw(N, D, seed=1)[part]), model(draw(N, D, seed=2)[part]))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        results.append({"loss": value.detach(), **dict(net.state_dict())})
    compare(f"DDP on rank {rank}", *results)


def stores(rows: slice) -> None:
    """Queues and banks hold the same on every rank as on one."""
    held = []
    for part, group in ((rows, dist.group.WORLD), (slice(None), None)):
        torch.manual_seed(2)
        queue, bank = Queue(10, D, with_ids=True), MemoryBank(12, D)
        for seed in range(3):
            queue.update(draw(N, D, seed=seed)[part], IDS[part], group=group)
            bank.update((IDS * 2 + seed)[part], draw(N, D, seed=seed)[part], group=group)
        held.append({**queue.state_dict(), **bank.state_dict()})
    compare("stores", *held)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
