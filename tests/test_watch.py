"""`mlcpc watch`: what the folders of runs tell, without touching them."""

import contextlib
import fcntl
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mlcpc.cli import main
from mlcpc.commands.watch import sheet
from mlcpc.sweep.seen import Glance, Seen, held_locks

OLD = 1e6
"""a time long ago"""


def put(
    folder: Path,
    rows: list[dict[str, Any]] | str = "",
    config: dict[str, Any] | None = None,
    age: float = 0,
    **more: str,
) -> Path:
    """A run's folder, last written to `age` seconds ago; more: other files by stem."""
    folder.mkdir(parents=True)
    text = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "config.json").write_text(json.dumps(config or {"epochs": 10}))
    if text:
        (folder / "metrics.jsonl").write_text(text)
    for name, content in more.items():
        (folder / {"log": "log.txt", "result": "result.json"}[name]).write_text(content)
    for path in folder.iterdir():
        os.utime(path, (time.time() - age,) * 2)
    return folder


def step(epoch: int, **numbers: float) -> dict[str, Any]:
    return {"kind": "step", "epoch": epoch, "step": 5, "loss": 2.5, "seconds": 3.0, **numbers}


def epoch(number: int, **numbers: float) -> dict[str, Any]:
    return step(number, **numbers) | {"kind": "epoch"}


def one(root: Path) -> Seen:
    (found,) = Glance(root)()
    return found


def test_a_run_in_the_middle(tmp_path: Path) -> None:
    rows = [epoch(2, top1=0.5, estimate=1.0, ceiling=9.0), step(3, loss=2.25, estimate=4.0, ceiling=6.0, alpha=0.1)]
    put(tmp_path / "distill" / "a", rows)
    run = one(tmp_path)
    assert (run.status, run.epoch, run.epochs, run.share) == ("running", 3, 10, 0.3)
    assert run.numbers == {"loss": 2.25, "estimate": 4.0, "ceiling": 6.0, "alpha": 0.1, "top1": 0.5}
    assert run.age is not None
    assert run.age < 30


def test_a_line_that_is_half_written_is_left_out(tmp_path: Path) -> None:
    put(tmp_path / "train" / "a", json.dumps(epoch(1, top1=0.25)) + '\n{"kind": "step", "epoch": 2, "lo')
    run = one(tmp_path)
    assert (run.epoch, run.numbers["top1"], run.numbers["loss"]) == (2, 0.25, 2.5)


@pytest.mark.parametrize("text", ["", "nonsense", "[]\n3\nnull\n", '{"epoch": "x", "kind": 1}\n', "\x00" * 100])
def test_metrics_of_any_kind(text: str, tmp_path: Path) -> None:
    run = one(put(tmp_path / "train" / "a", text).parent)
    assert (run.status, run.epoch, run.numbers) == ("running", None, {})


def test_the_accuracy_of_the_last_epoch_is_found_behind_many_lines(tmp_path: Path) -> None:
    put(tmp_path / "pretrain" / "a", [epoch(0, knn_top1=0.1), epoch(1, knn_top1=0.75), *[step(2)] * 500])
    assert one(tmp_path).numbers["knn_top1"] == 0.75


def test_done_stopped_and_failed(tmp_path: Path) -> None:
    good = json.dumps({"config": {"epochs": 10}, "top1": 0.875})
    put(tmp_path / "a" / "done", [epoch(9, top1=0.8)], age=OLD, result=good)
    put(tmp_path / "a" / "broken", age=OLD, result="{")
    put(tmp_path / "a" / "stopped", [epoch(4)], age=OLD)
    put(tmp_path / "a" / "asked", age=OLD, log="--- attempt 1\nmlcpc: stopped after 9 steps; a checkpoint is in a\n")
    put(tmp_path / "a" / "failed", [epoch(4)], age=OLD, log="--- attempt 1\nmlcpc: the loss is nan at epoch 5\n")
    put(tmp_path / "a" / "thrown", age=OLD, log="Traceback\n  x\ntorch.OutOfMemoryError: CUDA out of memory\n")
    put(tmp_path / "a" / "probe", config={"run": "x", "linear": {"epochs": 100}})
    found = {run.folder.name: run for run in Glance(tmp_path)()}
    assert {name: run.status for name, run in found.items()} == {
        **{"asked": "stopped", "broken": "failed", "done": "done", "failed": "failed", "probe": "running"},
        **{"stopped": "stopped", "thrown": "failed"},
    }
    assert found["failed"].message == "the loss is nan at epoch 5"
    assert found["thrown"].message == "torch.OutOfMemoryError: CUDA out of memory"
    assert found["done"].numbers == {"loss": 2.5, "top1": 0.875}
    assert (found["done"].share, found["stopped"].share, found["probe"].epochs) == (1.0, 0.5, 100)


@pytest.mark.skipif(held_locks() is None, reason="this system does not tell which files are locked")
def test_a_locked_run_is_running_however_long_it_is_silent(tmp_path: Path) -> None:
    folder = put(tmp_path / "train" / "a", [epoch(4)], age=OLD)
    assert one(tmp_path).status == "stopped"
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert one(tmp_path).status == "running"
    assert one(tmp_path).status == "stopped"


def test_looking_changes_nothing(tmp_path: Path) -> None:
    folder = put(tmp_path / "train" / "a", [epoch(4)], age=OLD, log="mlcpc: no\n")
    (folder / ".lock").touch()

    def state() -> list[tuple[str, int, int]]:
        return sorted((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*"))

    before = state()
    for path in tmp_path.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    one(tmp_path)
    assert main(["watch", str(tmp_path), "--once"]) == 0
    assert state() == before
    for path in tmp_path.rglob("*"):
        path.chmod(0o755)


def test_again_only_what_changed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [put(tmp_path / "train" / f"r{i}", [epoch(1)]) for i in range(5)]
    glance = Glance(tmp_path)
    glance()
    read: list[Path] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args, **more: (read.append(self), real(self, *args, **more))[1])
    assert [run.epoch for run in glance()] == [2] * 5
    assert [path for path in read if tmp_path in path.parents] == []
    with real(folders[3] / "metrics.jsonl", "a") as file:
        file.write(json.dumps(epoch(6)) + "\n")
    assert [run.epoch for run in glance()] == [2, 2, 2, 7, 2]
    assert [path for path in read if tmp_path in path.parents] == [folders[3] / "metrics.jsonl"]


def test_hundreds_of_runs_in_a_moment(tmp_path: Path) -> None:
    lines = "".join(json.dumps(step(i // 40, estimate=1.0)) + "\n" for i in range(400))
    for i in range(500):
        put(tmp_path / "distill" / f"r{i:03}", lines)
    glance = Glance(tmp_path)
    started = time.process_time()
    glance()
    assert time.process_time() - started < 3
    started = time.process_time()
    assert len(glance()) == 500
    assert time.process_time() - started < 0.5


def shown(root: Path, width: int = 120, **more: Any) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(sheet(Glance(root)(), width, **more))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table(tmp_path: Path) -> None:
    name = "resnet56-resnet20-ml_cpc-0.05-cifar10-s0-2dfdedef08"
    put(tmp_path / "distill" / name, [epoch(2, top1=0.5, estimate=4.0, ceiling=6.0, alpha=0.05)])
    put(tmp_path / "train" / "resnet20[x]", age=OLD, log="mlcpc: [nan]\n")
    text = shown(tmp_path)
    assert "2 runs: 1 running, 1 failed" in text
    row = next(line for line in text.splitlines() if "resnet56" in line).split()
    expected = "distill resnet56-resnet20-ml_cpc-0.05-cifar10-s0 running 3/10 2.5 4 of 6 0.05 50.0%"
    assert row[: len(expected.split())] == expected.split()
    assert row[-1] == "s"
    assert "resnet20[x]" in text
    assert "[nan]" in text
    narrow = shown(tmp_path, 80)
    assert "distill" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert "50.0%" in narrow
    assert "1 not shown" in shown(tmp_path, rows=1)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path)]) == 0  # no terminal: once
    assert "no runs here" in capsys.readouterr().out
    put(tmp_path / "train" / "a")
    for root in (tmp_path, tmp_path / "train", tmp_path / "train" / "a"):
        assert main(["watch", str(root), "--once"]) == 0
        assert "1 runs: 1 running" in capsys.readouterr().out
    assert main(["watch", str(tmp_path / "none")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--every", "0"]) == 2
    assert "every is 0.0" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["q", "SIGINT"])
def test_in_a_terminal_it_stays_until_q_or_an_interrupt(ending: str, tmp_path: Path) -> None:
    put(tmp_path / "train" / "a-run")
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "mlcpc", "watch", str(tmp_path), "--every", "0.2"]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    text = b""

    def read_until(done: Callable[[], bool]) -> None:
        nonlocal text
        late = time.monotonic() + 60
        while not done():
            assert time.monotonic() < late, text
            if select.select([ours], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):  # the other end was closed
                    text += os.read(ours, 65536)

    read_until(lambda: b"a-run" in text)
    assert process.poll() is None
    if ending == "q":
        os.write(ours, b"xq")
    else:
        process.send_signal(signal.SIGINT)
    read_until(lambda: process.poll() is not None)
    os.close(ours)
    assert process.returncode == 0
    assert b"Traceback" not in text
