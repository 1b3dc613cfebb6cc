"""Figure 3's updates: the published way against this library's, side by side on one CPU.

python -m benchmarks.figure3 [--threads N] [--rounds N]      some ten minutes → results/bench/figure3.csv

`Published` is a plain stand-in for how the paper's code trains: one (objective, α) at a time, critics of
nn.Sequential, the joint one on all n² concatenated pairs, the objective's formula on the score matrix, autograd, Adam.
Ours is `mlcpc.mi.staircase.Ascent` with the config of the paper scale, all ten methods at once. The two take turns in
one process with the same number of threads, at every level of the staircase: the share of pairs that carry the gradient
falls as the information rises, so ours first trains a while at each level, untimed. The published way's time does not
depend on its weights.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from mlcpc.mi.staircase import Ascent, Staircase
from mlcpc.mi.tasks import correlated_gaussian, correlation
from mlcpc.reproduce.figure3 import TARGET

N, DIM, HIDDEN, EMBEDDING = 128, 20, 256, 32


def mlp(inputs: int, outputs: int, hidden_layers: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, HIDDEN), nn.ReLU()]
    for _ in range(hidden_layers - 1):
        layers += [nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, outputs))


class PublishedJoint(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(2 * DIM, 1, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        xs = x.unsqueeze(1).repeat(1, N, 1)
        ys = y.unsqueeze(0).repeat(N, 1, 1)
        return self.net(torch.cat([xs, ys], 2).reshape(N * N, 2 * DIM)).reshape(N, N)


class PublishedSeparable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.g, self.h = mlp(DIM, EMBEDDING, 3), mlp(DIM, EMBEDDING, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.g(x) @ self.h(y).t()


def published_objective(scores: Tensor, objective: str, alpha: float) -> Tensor:
    """L_α or J_α by Eq. 4 and 6."""
    m = len(scores)
    weights = torch.full_like(scores, (m - alpha) / (m - 1)).fill_diagonal_(alpha).log()
    positive, weighted = scores.diag(), scores + weights
    if objective == "cpc":
        return (positive - torch.logsumexp(weighted, 1)).mean() + torch.tensor(float(m)).log()
    return positive.mean() - torch.logsumexp(weighted.flatten(), 0) + torch.tensor(float(m * m)).log()


class Published:
    """One method's training."""

    def __init__(self, critic: str, objective: str, alpha: float) -> None:
        self.critic = {"joint": PublishedJoint, "separable": PublishedSeparable}[critic]()
        self.objective, self.alpha = objective, alpha
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(0)

    def update(self, level: float) -> float:
        x, y = correlated_gaussian(N, DIM, correlation(level, DIM), self.generator)
        estimate = published_objective(self.critic(x, y), self.objective, self.alpha)
        self.optimizer.zero_grad()
        (-estimate).backward()
        self.optimizer.step()
        return estimate.item()


def seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def measure(critic: str, warm_up: int, rounds: int) -> list[dict[str, object]]:
    """Milliseconds per update and method, ours and the published way's, at each level of the staircase."""
    config: Staircase = TARGET.scales["paper"].config
    ours = Ascent(config, critic)
    published = [Published(critic, *method) for method in config.methods]
    rows: list[dict[str, object]] = []
    for place, level in enumerate(config.levels):

        def all_published(level: float = level) -> None:
            for method in published:
                method.update(level)

        ours.step = place * config.steps
        for _ in range(warm_up):
            ours.update()
        published[0].update(level)
        fast, slow = [], []
        for _ in range(rounds):
            fast.append(seconds(ours.update))
            slow.append(seconds(all_published))
            fast.append(seconds(ours.update))
        theirs_ms, ours_ms = (1e3 * median(times) / len(published) for times in (slow, fast))
        ratio = theirs_ms / ours_ms
        rows.append({"critic": critic, "mi": level, "published_ms": theirs_ms, "ours_ms": ours_ms, "ratio": ratio})
        print(f"{critic:10} {level:3g} nats: {theirs_ms:7.2f} → {ours_ms:6.2f} ms, × {ratio:.2f}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5, help="of ten published updates between two of ours")
    parser.add_argument("--warm-up", type=int, default=150, help="of our updates at each level before it is timed")
    parser.add_argument("--out", type=Path, default=Path("results/bench/figure3.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [row for critic in ("separable", "joint") for row in measure(critic, arguments.warm_up, arguments.rounds)]
    parts = {"separable": rows[:5], "joint": rows[5:], "whole figure": rows}
    for name, part in parts.items():  # every level has the same number of updates, so sums of times compare
        slow, fast = (sum(float(str(row[key])) for row in part) for key in ("published_ms", "ours_ms"))
        mean = {"published_ms": slow / 5, "ours_ms": fast / 5, "ratio": slow / fast}
        rows = [*rows, {"critic": name, "mi": "all", **mean}]
        print(f"{name:14}: × {slow / fast:.2f}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "threads", "rounds"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
            writer.writerow({**rounded, "threads": arguments.threads, "rounds": arguments.rounds})


if __name__ == "__main__":
    main()
