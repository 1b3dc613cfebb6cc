"""CPC against ML-CPC at batches of 16 to 512, in tasks whose answer a person wants: retrieval.

    python -m benchmarks.small_batch [--quick]     writes results/bench/small_batch{,_tuning}.csv and .{svg,png}

docstrings  Which sentence documents this function? 5,000 names with arguments, from Python's own library. A linear map
            on each side of a fixed text embedding (tf-idf of letters, 256 singular vectors) starts from the identity
halves      Which right half belongs to this left half of a digit? scikit-learn's 1797 digits
classes     Digits learnt from two shifted, noisy views without labels: is the nearest neighbour of the same class?

At each batch size all methods see the same number of samples in the same order from the same weights, and each seed has
its own split into training, validation and test rows. Temperature and rate are tuned on validation rows: every method
has the same grid, at every batch size, on a seed that is not used again. Offline; a quarter of an hour on one thread.
"""

import ast
import csv
import itertools
import re
import statistics
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.measure import OUT, write
from mlcpc import ContrastiveLoss, GuaranteeWarning
from mlcpc.bounds import alpha_min

BATCHES = (16, 32, 64, 128, 256, 512)
METHODS = {
    "CPC": ("cpc", "1"),
    "CPC, α = 0.1": ("cpc", "0.1"),
    "ML-CPC": ("ml_cpc", "1"),
    "ML-CPC, α = 0.1": ("ml_cpc", "0.1"),
    "ML-CPC, α_{m,n}": ("ml_cpc", "min"),
    "ML-CPC, α 10 → 0.1": ("ml_cpc", "10:0.1"),
}
GRID = tuple(itertools.product((0.05, 0.1, 0.2), (1e-3, 4e-3)))  # temperature, Adam's rate at n = 64; it grows with √n
SEEDS = (1, 2, 3, 4, 5)  # 0 is for tuning
Row = dict[str, object]


@dataclass
class Task:
    """x and y belong together row for row; `score` takes a part's embeddings of both sides."""

    name: str
    metric: str
    x: Tensor
    y: Tensor
    train: Tensor
    valid: Tensor
    test: Tensor
    epochs: int
    score: Callable[["Task", nn.Module, nn.Module, Tensor], float]
    tower: Callable[[int], nn.Module]
    augment: Callable[[Tensor, torch.Generator], Tensor] = lambda x, generator: x
    labels: Tensor | None = None


def split(n: int, valid: int, test: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[valid + test :], order[:valid], order[valid : valid + test]


def reciprocal_rank(task: Task, f: nn.Module, h: nn.Module, rows: Tensor) -> float:
    """Mean over queries of 1 / rank of the true partner among all rows of the part."""
    scores = F.normalize(f(task.x[rows]), dim=1) @ F.normalize(h(task.y[rows]), dim=1).T
    return (1 / (scores >= scores.diagonal()[:, None]).sum(1)).mean().item()


def neighbour(task: Task, f: nn.Module, h: nn.Module, rows: Tensor) -> float:
    """Share of rows whose nearest training row has their label."""
    assert task.labels is not None
    near = (F.normalize(f(task.x[rows]), dim=1) @ F.normalize(f(task.x[task.train]), dim=1).T).argmax(1)
    return (task.labels[task.train][near] == task.labels[rows]).float().mean().item()


def documented() -> Iterator[tuple[str, str]]:
    """(Class.name(arguments), first paragraph of its docstring), from the sources of the standard library."""
    root, seen = Path(sysconfig.get_path("stdlib")), set()
    left_out = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip"}
    for path in sorted(root.rglob("*.py")):
        if left_out & set(path.relative_to(root).parts):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
            if len(text.split()) >= 5 and text not in seen:
                seen.add(text)
                arguments = [a.arg for a in node.args.args + node.args.kwonlyargs if a.arg != "self"]
                yield f"{path.stem} {node.name} {' '.join(arguments)}", text


def docstrings(seed: int) -> Task:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = [[re.sub(r"([a-z])([A-Z])|_", r"\1 \2", side).lower() for side in pair] for pair in documented()]
    names, texts = zip(*words, strict=True)
    train, valid, test = split(len(names), 500, 1000, seed)
    known = [side[i] for i in train.tolist() for side in (names, texts)]
    counts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, sublinear_tf=True).fit(known)
    reduce = TruncatedSVD(256, random_state=0).fit(counts.transform(known))
    x, y = (torch.from_numpy(reduce.transform(counts.transform(side)).astype(np.float32)) for side in (names, texts))
    spread = x[train].std(0)
    parts = (x / spread, y / spread, train, valid, test)
    return Task("docstrings", "mean reciprocal rank", *parts, 15, reciprocal_rank, identity)


def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.from_numpy(found.images).float() / 16, torch.from_numpy(found.target).long()


def halves(seed: int) -> Task:
    images, _ = digits()
    left, right = images[:, :, :4].flatten(1), images[:, :, 4:].flatten(1)
    parts = split(len(images), 300, 400, seed)
    return Task("halves", "mean reciprocal rank", left, right, *parts, 60, reciprocal_rank, perceptron)


def classes(seed: int) -> Task:
    images, labels = digits()
    parts = split(len(images), 300, 400, seed)
    flat = images.flatten(1)
    return Task("classes", "1-NN accuracy", flat, flat, *parts, 60, neighbour, perceptron, shifted, labels)


def shifted(flat: Tensor, generator: torch.Generator) -> Tensor:
    """Each 8 × 8 picture moved by up to one pixel each way, with noise."""
    n = len(flat)
    padded = F.pad(flat.view(n, 8, 8), (1, 1, 1, 1))
    down, right = torch.randint(3, (2, n, 1, 1), generator=generator)
    at = torch.arange(8)
    moved = padded[torch.arange(n)[:, None, None], down + at[:, None], right + at]
    return moved.flatten(1) + 0.1 * torch.randn(n, 64, generator=generator)


def perceptron(d: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 64))


def identity(d: int) -> nn.Module:
    net = nn.Linear(d, d)
    nn.init.eye_(net.weight)
    nn.init.zeros_(net.bias)
    return net


def trained(task: Task, method: str, batch: int, temperature: float, rate: float, seed: int) -> list[nn.Module]:
    """Both sides' networks after the task's budget; weights, order and views depend on the seed alone."""
    torch.manual_seed(seed)
    networks = [task.tower(task.x.shape[1])]
    networks.append(networks[0] if task.x is task.y else task.tower(task.y.shape[1]))
    objective, alpha = METHODS[method]
    loss = ContrastiveLoss(objective, str(alpha_min(batch, batch)) if alpha == "min" else alpha, temperature)
    rate *= (batch / 64) ** 0.5
    optimizer = torch.optim.Adam({p for net in networks for p in net.parameters()}, rate, fused=True)
    generator = torch.Generator().manual_seed(seed)
    steps = task.epochs * (len(task.train) // batch)
    for step in range(steps):
        at = step % (len(task.train) // batch)
        if at == 0:
            order = task.train[torch.randperm(len(task.train), generator=generator)]
        rows = order[at * batch : (at + 1) * batch]
        loss.progress = step / steps
        value = loss(
            *(net(task.augment(side[rows], generator)) for net, side in zip(networks, (task.x, task.y), strict=True))
        )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - (step + 1) / steps)
    return networks


@torch.no_grad()
def judged(task: Task, networks: list[nn.Module], rows: Tensor) -> float:
    return task.score(task, networks[0], networks[1], rows)


def run(make: Callable[[int], Task], seeds: tuple[int, ...], batches: tuple[int, ...]) -> tuple[list[Row], list[Row]]:
    """Every method at every batch size: its scores on test rows with the winner of its tuning; and the tuning."""
    tasks = {seed: make(seed) for seed in (0, *seeds)}
    rows: list[Row] = []
    tuning: list[Row] = []
    for batch, method in itertools.product(batches, METHODS):
        task = tasks[0]
        found = {setting: judged(task, trained(task, method, batch, *setting, 0), task.valid) for setting in GRID}
        key: Row = {"task": task.name, "batch": batch, "method": method}
        tuning += [key | {"temperature": t, "rate": r, "valid": round(v, 4)} for (t, r), v in found.items()]
        t, r = max(found, key=lambda setting: found[setting])
        for seed in seeds:
            value = judged(tasks[seed], trained(tasks[seed], method, batch, t, r, seed), tasks[seed].test)
            chosen = {"temperature": t, "rate": r, "seed": seed, "metric": task.metric, "test": round(value, 4)}
            rows.append(key | chosen)
        print(f"{task.name}, n = {batch}, {method}: {rows[-1]['test']}", flush=True)
    return rows, tuning


def paired(rows: list[dict[str, str]], task: str, batch: int, method: str) -> tuple[float, float, float]:
    """Mean score over seeds; mean of its difference to CPC, seed by seed, and the half width of its 95 % interval."""

    def scores(name: str) -> dict[str, float]:
        picked = [row for row in rows if (row["task"], int(row["batch"]), row["method"]) == (task, batch, name)]
        return {row["seed"]: float(row["test"]) for row in picked}

    mine, cpc = scores(method), scores("CPC")
    apart = [mine[seed] - cpc[seed] for seed in mine]
    half = 0.0 if len(apart) < 2 else 2.776 * statistics.stdev(apart) / len(apart) ** 0.5  # Student's t, 5 seeds
    return statistics.mean(mine.values()), statistics.mean(apart), half


def draw(rows: list[dict[str, str]], folder: Path) -> None:
    """Above: scores, mean over seeds. Below: what is gained on CPC, with 95 % intervals of the paired differences."""
    import matplotlib.pyplot as plt

    from mlcpc import plots

    blues, oranges = plots.shades("ml_cpc", 4), plots.shades("cpc", 2)
    colours = dict(zip(METHODS, [oranges[1], oranges[0], *blues], strict=True))
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    batches = sorted({int(row["batch"]) for row in rows})
    with plots.style():
        figure, axes = plt.subplots(2, len(tasks), figsize=(11, 6), sharex=True, squeeze=False)
        for (top, bottom), task in zip(axes.T, tasks, strict=True):
            for place, method in enumerate(METHODS):
                found = [paired(rows, task, batch, method) for batch in batches]
                x = [batch * 1.04 ** (place - 2.5) for batch in batches]
                top.plot(x, [f[0] for f in found], "o-", ms=4, color=colours[method], label=method)
                middle, half = [f[1] for f in found], [f[2] for f in found]
                if method != "CPC":
                    bottom.errorbar(x, middle, half, fmt="o", ms=4, lw=1.2, color=colours[method])
            bottom.axhline(0, color=oranges[1], lw=1.2)
            top.set(title=task, ylabel=next(row["metric"] for row in rows if row["task"] == task))
            bottom.set(xlabel="batch size n", ylabel="difference to CPC", xscale="log")
            bottom.set_xticks(batches, [str(batch) for batch in batches])
            bottom.minorticks_off()
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
        plots.save(figure, folder, "small_batch")


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", GuaranteeWarning)
    quick = "--quick" in sys.argv
    seeds, batches = (SEEDS[:2], BATCHES[2:4]) if quick else (SEEDS, BATCHES)
    rows: list[Row] = []
    tuning: list[Row] = []
    begin = time.process_time()
    for make in (docstrings, halves, classes):
        more, grid = run(make, seeds, batches)
        rows, tuning = rows + more, tuning + grid
    print(f"{time.process_time() - begin:.0f} s of one core")
    if quick:
        return
    write("small_batch", rows)
    write("small_batch_tuning", tuning)
    draw(list(csv.DictReader((OUT / "small_batch.csv").open())), OUT)


if __name__ == "__main__":
    main()
