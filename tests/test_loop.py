"""The loop: it resumes exactly, stops cleanly, finds divergence, and ranks and pieces change nothing."""

import json
import os
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from mlcpc.config import InputError
from mlcpc.loop import DivergenceError, Interrupted, fit
from mlcpc.plan import Plan, Progress, cosine, milestones
from mlcpc.ranks import Ranks

HERE = Path(__file__).parent


class Rows(NamedTuple):
    x: Tensor
    y: Tensor
    indices: Tensor


class Line:
    """y = 2x + 1, learnt by least squares in float64; without anything that depends on the split of a batch."""

    def __init__(self, size: int = 22) -> None:
        self.x = torch.linspace(-1, 1, size, dtype=torch.float64)[:, None]
        torch.manual_seed(0)
        self.parts: Any = nn.Linear(1, 1, dtype=torch.float64)
        self.optimizer = torch.optim.SGD(self.parts.parameters(), 0.1, momentum=0.9)
        self.seen: list[list[int]] = []
        self.evaluations = 0

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, order: list[Tensor], device: Any, key: tuple[int, ...]) -> Any:
        for rows in order:
            self.seen.append(rows.tolist())
            yield Rows(self.x[rows], 2 * self.x[rows] + 1, rows)

    def loss(self, batch: Rows, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        error = (self.parts(batch.x) - batch.y).square().mean()
        return error * at.weight, {"error": error.detach()}

    def after_step(self, batch: Rows, at: Progress) -> None: ...

    def evaluate(self, at: Progress) -> dict[str, float]:
        self.evaluations += 1
        return {"slope": self.parts.weight.item()}


def train(learner: Line, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    plan = Plan(**{"epochs": 4, "batch": 5, "precision": "float64", "log_every": 2, **settings})
    return fit(learner, learner, plan, cosine(0.1), folder)


@pytest.mark.parametrize("world", [1, 2])
def test_killed_anywhere_it_resumes_to_the_same_end(world: int, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "killed.py"), str(tmp_path), str(world), "10"]
    out = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert out.returncode == 0, (out.stdout + out.stderr)[-3000:]
    assert out.stdout.strip().endswith("all ended alike")


def test_two_ranks_under_torchrun_end_where_one_does(tmp_path: Path) -> None:
    train(Line(), tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "line.py"), str(tmp_path / "two")]
    out = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert out.returncode == 0, out.stderr[-3000:]
    ends = []
    for name in ("one", "two"):
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        ends.append([[row["loss"], row["error"], row.get("slope", 0.0)] for row in lines])
    torch.testing.assert_close(torch.tensor(ends[0]), torch.tensor(ends[1]), rtol=1e-10, atol=1e-12)


def test_every_epoch_sees_every_sample_once_in_another_order(tmp_path: Path) -> None:
    learner = Line()
    rows = train(learner, tmp_path)
    epochs = [list(chain.from_iterable(learner.seen[i : i + 5])) for i in range(0, 20, 5)]
    assert all(sorted(epoch) == list(range(22)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert rows[-1]["loss"] < 0.3 * rows[0]["loss"]
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["error"])
    assert abs(rows[-1]["slope"] - 2) < 0.5


def test_the_last_batch_by_choice(tmp_path: Path) -> None:
    learner = Line()
    train(learner, tmp_path, drop_last=True, epochs=1, evaluate_every=3)
    assert [len(rows) for rows in learner.seen] == [5] * 4
    assert learner.evaluations == 1  # the last epoch is evaluated whatever evaluate_every says


def test_pieces_of_a_batch_add_up(tmp_path: Path) -> None:
    whole, pieces = Line(), Line()
    train(whole, tmp_path / "a")
    train(pieces, tmp_path / "b", accumulate=2)
    torch.testing.assert_close(whole.parts.weight, pieces.parts.weight, rtol=1e-12, atol=0)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    rows = train(Line(), tmp_path)
    again = Line()
    assert train(again, tmp_path) == rows
    assert again.seen == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    class Asked(Line):
        def after_step(self, batch: Rows, at: Progress) -> None:
            if at.done == 7:
                os.kill(os.getpid(), number)

    whole = Line()
    train(whole, tmp_path / "whole")
    asked = Asked()
    with pytest.raises(Interrupted, match="stopped after 8 steps"):
        train(asked, tmp_path / "asked")
    assert signal.getsignal(number) is not None
    resumed = Line()
    train(resumed, tmp_path / "asked")
    assert len(resumed.seen) == 20 - 8
    assert torch.equal(resumed.parts.weight, whole.parts.weight)


def test_divergence_stops_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    class Exploding(Line):
        def loss(self, batch: Rows, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
            error, numbers = super().loss(batch, at)
            return error * (float("nan") if at.done >= 11 else 1.0), numbers

    with pytest.raises(DivergenceError, match=r"loss is nan at epoch 3, step 2 .* Try a lower learning rate"):
        train(Exploding(), tmp_path, checkpoint_seconds=0.0)
    kept = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert kept == ["checkpoint-000000010.safetensors", "checkpoint-000000011.safetensors"]


def test_metrics_after_a_torn_line(tmp_path: Path) -> None:
    train(Line(), tmp_path, epochs=2)
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"kind": "step", "st')
    train(Line(), tmp_path, epochs=2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in lines if row["kind"] == "epoch"] == [5, 10]
    assert all(row["seconds"] >= 0 for row in lines)


def test_shares_of_a_batch_and_their_weights() -> None:
    ranks = []
    for rank in range(3):
        r = Ranks("cpu")
        r.size, r.rank = 3, rank
        ranks.append(list(Plan(epochs=1, batch=8).order(20, 0, 0, r)))
    for parts in zip(*ranks, strict=True):
        rows = torch.cat([rows for rows, _ in parts])
        assert sum(weight for _, weight in parts) == pytest.approx(3)
        for own, weight in parts:
            assert weight == pytest.approx(3 * len(own) / len(rows))
    everything = torch.cat([rows for parts in ranks for rows, _ in parts])
    assert sorted(everything.tolist()) == list(range(20))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"precision": "float16"}, "precision is 'float16', which is not known: write one of float64, float32"),
        ({"accumulate": 0}, "accumulate is 0"),
        ({"batch": 50, "drop_last": True}, "22 samples in batches of 50 make 0 steps"),
        ({"batch": 2, "accumulate": 3}, "smaller"),
    ],
)
def test_bad_plans_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        train(Line(), tmp_path, **settings)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InputError, match="write cpu, cuda"):
        Ranks("gpu")


def test_rates() -> None:
    rate = milestones(1.0, (0.5, 0.75))
    assert [rate(Progress(e, 3, 8, 10)) for e in range(8)] == pytest.approx([1] * 4 + [0.1] * 2 + [0.01] * 2)
    assert cosine(2.0)(Progress(5, 9, 10, 10)) == pytest.approx(1.0)
    assert cosine(2.0, per_step=True)(Progress(5, 5, 10, 10)) < 1.0
