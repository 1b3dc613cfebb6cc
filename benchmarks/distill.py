"""A distillation step against the published way of doing it; the same numbers come out, which every run asserts.

    python -m benchmarks.distill [--quick]      writes results/bench/distill.csv

bank       forward, backward and update of the contrastive loss, both directions: n 64, k 16384, dim 128, N 50000.
           Published: the vectors of all negatives are gathered, (n, k + 1, dim), and multiplied with each anchor.
negatives  k of other classes for each sample of a batch. Published: numpy's choice without replacement, row by row.
step       resnet56 → resnet20 with CRD and KD on 64 images: both networks, loss, backward pass, optimiser, banks, and
           drawing the negatives.

One thread, medians of thread time; on a GPU, of wall time with a synchronisation.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.measure import medians, write
from mlcpc import models
from mlcpc.distill.losses import kd_loss
from mlcpc.distill.memory import Contrast
from mlcpc.distill.negatives import OtherClasses

TAU, ALPHA, CLASSES = 0.07, 0.05, 100
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Published(nn.Module):
    """The published computation, in our own words: gathered vectors, exponentials over Z, one tensor of them each."""

    def __init__(self, ours: Contrast) -> None:
        super().__init__()
        self.nets = nn.ModuleList([nn.Linear(net.in_features, net.out_features) for net in projections(ours)])
        self.nets.to(DEVICE).load_state_dict(nn.ModuleList(projections(ours)).state_dict())
        self.banks = [bank.vectors.clone() for bank in (ours.student_bank, ours.teacher_bank)]
        self.objective = ours.objective
        self.z: list[Tensor] = []

    def forward(self, student: Tensor, teacher: Tensor, indices: Tensor, rows: Tensor) -> Tensor:
        n, size, every = len(indices), len(self.banks[0]), torch.cat([indices[:, None], rows], 1)
        self.seen = indices, [unit(net(x)) for net, x in zip(self.nets, (student, teacher), strict=True)]
        total = student.new_zeros(())
        for side, v in enumerate(self.seen[1]):
            vectors = self.banks[1 - side].index_select(0, every.flatten()).view(n, every.shape[1], -1)
            x = torch.exp(torch.bmm(vectors, v[:, :, None]).squeeze(2) / TAU)
            if len(self.z) == side:
                self.z.append(x.mean().detach() * size)
            total = total + self.criterion(x / self.z[side], size)
        return total

    def criterion(self, x: Tensor, size: int) -> Tensor:
        pos, neg, k = x[:, 0], x[:, 1:], x.shape[1] - 1
        if self.objective == "crd":
            noise, eps = k / size, 1e-7
            positive = (pos / (pos + noise + eps)).log()
            negative = (torch.full_like(neg, noise) / (neg + noise + eps)).log()
            return -(positive.sum() + negative.sum()) / len(x)
        beta = (k + 1 - ALPHA) / k
        if self.objective == "cpc":
            every = ((pos * ALPHA) + (neg * beta).sum(1)).div(k + 1).log()
        else:
            every = ((pos * ALPHA).mean() + (neg * beta).mean() * k).log()
        return (every - pos.log()).mean()

    @torch.no_grad()
    def update(self) -> None:
        indices, found = self.seen
        for bank, v in zip(self.banks, found, strict=True):
            bank.index_copy_(0, indices, unit(bank.index_select(0, indices) * 0.5 + v * 0.5))


def projections(contrast: Contrast) -> list[nn.Linear]:
    return [contrast.project_student, contrast.project_teacher]


def unit(x: Tensor) -> Tensor:
    return x / x.pow(2).sum(1, keepdim=True).sqrt()


def sides(
    objective: str, dims: tuple[int, int], n: int, k: int, size: int, fixed: bool = True
) -> tuple[Contrast, Published, Tensor, Tensor]:
    """Both ways with the same weights and banks, a batch's samples, and their negatives, drawn beforehand."""
    torch.manual_seed(0)
    labels = torch.arange(size) % CLASSES
    ours = Contrast(*dims, labels, objective, ALPHA, k).to(DEVICE)
    indices = torch.randperm(size)[:n].to(DEVICE)
    rows = ours.others.draw(indices, k, 0)
    if fixed:
        ours.others.draw = lambda *key: rows  # type: ignore[method-assign, assignment]
    return ours, Published(ours), indices, rows


def bank(n: int, k: int, size: int) -> list[dict[str, object]]:
    """Both ways from features on; gradients agree to 1e-5 of the largest, banks to 1e-6."""
    found: list[dict[str, object]] = []
    for objective in ("crd", "cpc", "ml_cpc"):
        ours, theirs, indices, rows = sides(objective, (64, 64), n, k, size)
        student, teacher = torch.randn(n, 64, device=DEVICE, requires_grad=True), torch.randn(n, 64, device=DEVICE)

        def product(
            autocast: bool = False, ours: Contrast = ours, x: Any = (student, teacher, indices)
        ) -> list[Tensor]:
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=autocast):
                loss, _ = ours(*x, (0, 0))
            grads = torch.autograd.grad(loss, [x[0], *(p for net in projections(ours) for p in net.parameters())])
            ours.update()
            return list(grads)

        def gather(theirs: Published = theirs, x: Any = (student, teacher, indices, rows)) -> list[Tensor]:
            grads = torch.autograd.grad(theirs(*x), [x[0], *theirs.nets.parameters()])
            theirs.update()
            return list(grads)

        for _ in range(2):
            compare(objective, product(), gather(), ours, theirs)
        ways: dict[str, Callable[[], object]] = {
            "published: gather of vectors": gather,
            "mlcpc": product,
            "mlcpc, bf16 autocast": lambda product=product: product(True),
        }
        found += rows_of("bank", objective, medians(ways, 20.0), "published: gather of vectors", n=n, k=k, N=size)
    return found


def compare(what: str, ours: list[Tensor], theirs: list[Tensor], mine: Contrast, published: Published) -> None:
    """The published way and ours, after the same step."""
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max(), f"{what}: gradients differ by {(a - b).abs().max():.1e}"
    for a, b in zip((mine.student_bank.vectors, mine.teacher_bank.vectors), published.banks, strict=True):
        assert (a - b).abs().max() <= 1e-6, f"{what}: banks differ by {(a - b).abs().max():.1e}"


def negatives(n: int, k: int, size: int) -> list[dict[str, object]]:
    """Drawing only."""
    labels = torch.arange(size) % CLASSES
    others, indices = OtherClasses(labels).to(DEVICE), torch.randperm(size)[:n].to(DEVICE)
    of_others, classes = rows_of_others(size), labels[indices.cpu()]
    rng, turn = np.random.default_rng(0), iter(range(10**9))
    ways: dict[str, Callable[[], object]] = {
        "numpy choice, row by row": lambda: by_numpy(of_others, classes, k),
        "numpy Generator.choice, row by row": lambda: by_numpy(of_others, classes, k, rng.choice),
        "mlcpc": lambda: others.draw(indices, k, 0, next(turn)),
    }
    return rows_of("negatives", "", medians(ways), "numpy choice, row by row", n=n, k=k, N=size)


def rows_of_others(size: int) -> list[Any]:
    """For each class."""
    labels = np.arange(size) % CLASSES
    return [np.flatnonzero(labels != c) for c in range(CLASSES)]


def by_numpy(of_others: list[Any], classes: Tensor, k: int, choice: Any = np.random.choice) -> Tensor:
    """As the published data set draws them, sample by sample (there in loader processes, which are cores too)."""
    return torch.from_numpy(np.stack([choice(of_others[c], k, replace=False) for c in classes.tolist()])).to(DEVICE)


def step(n: int, k: int, size: int, image: int) -> list[dict[str, object]]:
    """A whole step of training, with the published way's parts replaced one after the other."""
    ways: dict[str, Callable[[], object]] = {}
    for name, product, channels_last, narrow in (
        ("published: gather, float32", False, False, False),
        ("mlcpc's bank product", True, False, False),
        ("+ channels_last", True, True, False),
        ("+ bf16 autocast (mlcpc)", True, True, True),
    ):
        ways[name] = a_step(n, k, size, image, product, channels_last, narrow)
    return rows_of("step", "crd + kd", medians(ways, 30.0), "published: gather, float32", n=n, k=k, N=size)


def a_step(
    n: int, k: int, size: int, image: int, product: bool, channels_last: bool, narrow: bool
) -> Callable[[], object]:
    teacher, student = models.build("resnet56", CLASSES), models.build("resnet20", CLASSES)
    ours, theirs, indices, _ = sides("crd", (student.num_features, teacher.num_features), n, k, size, fixed=False)
    images, labels = torch.randn(n, 3, image, image, device=DEVICE), (indices % CLASSES)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    both = nn.ModuleList([teacher, student]).to(DEVICE)
    for net in both:
        net.to(memory_format=layout)  # type: ignore[call-overload]
    images = images.contiguous(memory_format=layout)
    teacher.eval().requires_grad_(False)
    contrast: nn.Module = ours if product else theirs
    learnt = [*student.parameters(), *(p for p in contrast.parameters() if p.requires_grad)]
    optimizer = torch.optim.SGD(learnt, 0.01, momentum=0.9, weight_decay=5e-4, fused=product)

    of_others = rows_of_others(size)
    turn = iter(range(10**9))

    def way() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=narrow):
            with torch.no_grad():
                taught, wanted = teacher.both(images)
            features, logits = student.both(images)
            loss = F.cross_entropy(logits.float(), labels) + kd_loss(logits, wanted)
            if product:
                loss = loss + 0.8 * ours(features, taught, indices, (0, next(turn)))[0]
            else:
                loss = loss + 0.8 * theirs(features, taught, indices, by_numpy(of_others, labels, k))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        (ours if product else theirs).update()

    return way


def rows_of(case: str, objective: str, times: dict[str, float], base: str, **shape: int) -> list[dict[str, object]]:
    """How many times faster than `base` each way is."""
    print(case, objective, {way: f"{t * 1e3:.2f} ms, {times[base] / t:.2f} x" for way, t in times.items()}, flush=True)
    return [
        {
            "case": case,
            "objective": objective,
            **shape,
            "way": way,
            "ms": round(t * 1e3, 3),
            "times_faster": round(times[base] / t, 2),
        }
        for way, t in times.items()
    ]


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    quick = "--quick" in arguments
    n, k, size = (16, 512, 5000) if quick else (64, 16384, 50000)
    table = bank(n, k, size) + negatives(n, k, size) + step(n, k, size, 32)
    name = "distill_gpu" if DEVICE.type == "cuda" else "distill_quick" if quick else "distill"
    print(write(name, table))


if __name__ == "__main__":
    main(sys.argv[1:])
