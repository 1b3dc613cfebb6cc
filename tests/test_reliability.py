"""The campaigns measure what they say: a planted fault is found, a sound thing passes; the page tells their figures."""

import hashlib
import json
import math
import random
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch

from mlcpc import checkpoints, runs
from mlcpc.config import InputError
from mlcpc.ranks import LostRankError, Ranks
from reliability import audit, crash, numerics, processes, scenes, soak
from reliability.record import ROOT, write
from test_loop import Line, train

FULL = ROOT / "results" / "reliability"
PAGE = ROOT / "docs" / "reliability.md"


# --- the page -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["crash", "faults", "hostile", "numerics", "soak"])
def test_the_page_tells_what_the_campaigns_found(name: str) -> None:
    found = json.loads((FULL / f"{name}.json").read_text())
    assert found["failures"] == []
    assert f"{found['summary']} ({found['date'][:10]}, {found['commit']})" in PAGE.read_text()


def test_every_figure_of_the_page_is_in_the_files() -> None:
    """Rows of its tables: a campaign, the keys to a figure, the figure."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) >= 10
    for row in rows:
        where, _, figure = (cell.strip() for cell in row.strip("|").split("|"))
        name, *keys = where.strip("`").split("/")
        value: Any = json.loads((FULL / f"{name}.json").read_text())
        for key in keys:
            value = value[key]
        assert f"{value:,}" == figure if isinstance(value, int) else float(figure) == pytest.approx(value), row


def test_findings_have_date_commit_and_machine(tmp_path: Path) -> None:
    found = json.loads(write("x", {"summary": "well", "failures": []}, 1.6, tmp_path).read_text())
    assert {"date", "commit", "machine", "summary"} <= found.keys()
    assert found["seconds"] == 2


# --- kills and faults -----------------------------------------------------------------------------------------------


def test_fingerprints_see_a_bit_and_no_clock(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()

    def make(seconds: float, value: float, weight: float) -> dict[str, str]:
        (folder / "result.json").write_text(
            json.dumps({"value": value, "seconds": seconds, "a": [{"seconds": seconds}]})
        )
        (folder / "metrics.jsonl").write_text(json.dumps({"value": value, "seconds": seconds}) + "\n")
        checkpoints.save(folder / "w.safetensors", {"w": torch.full((2,), weight)})
        torch.save({"w": torch.full((2,), weight), "seconds": seconds}, folder / "s.pt")
        return crash.fingerprint(folder)

    first = make(1.0, 2.0, 3.0)
    assert make(9.0, 2.0, 3.0) == first
    assert {name for name, digest in make(1.0, math.nextafter(2.0, 3), 3.0).items() if digest != first[name]} == {
        "result.json",
        "metrics.jsonl",
    }
    assert make(1.0, 2.0, 3.0000002)["w.safetensors"] != first["w.safetensors"]
    assert make(1.0, 2.0, 3.0000002)["s.pt"] != first["s.pt"]
    (folder / ".lock").touch()
    assert make(1.0, 2.0, 3.0) == first
    (folder / ".result.json.123").touch()
    assert make(1.0, 2.0, 3.0) != first, "a temporary file is seen"


def test_what_is_not_whole_after_a_kill_is_seen(tmp_path: Path) -> None:
    campaign = crash.Campaign(tmp_path, random.Random(0), "")
    (tmp_path / "metrics.jsonl").write_text('{"a": 1}\n{"a"')
    campaign.readable(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"a"\n{"a": 1}\n')
    with pytest.raises(ValueError, match=r"Expecting|delimiter"):
        campaign.readable(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    checkpoints.save(tmp_path / "c.safetensors", {"a": torch.ones(9)})
    campaign.readable(tmp_path)
    (tmp_path / "c.safetensors").write_bytes((tmp_path / "c.safetensors").read_bytes()[:-1])
    with pytest.raises(InputError):
        campaign.readable(tmp_path)


@pytest.mark.slow
def test_a_chain_of_kills_and_every_scene_once(tmp_path: Path) -> None:
    """In processes of their own, which have not computed with torch before they fork."""
    import subprocess
    import sys

    for name, minutes in (("crash", 1.0), ("faults", 0.1)):
        words = [sys.executable, "-m", "reliability", name, "--minutes", str(minutes), "--out", str(tmp_path)]
        told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        assert told.returncode == 0, told.stdout + told.stderr


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    dead = next(number for number in range(4_000_000, 5_000_000) if not processes.alive(number))
    mine, other = tmp_path / ".x.json.1", tmp_path / f".y.json.{dead}"
    left = tmp_path / f".x.json.{dead}"
    for path in (mine, other, left):  # of a living process, of another file, and what is to go
        path.write_text("half")
    runs.write_json(tmp_path / "x.json", {})
    assert not left.exists()
    assert mine.exists()
    assert other.exists()


def test_a_result_whose_writer_died_then_is_tidied_up(tmp_path: Path) -> None:
    from test_sweep import Settings

    config = Settings()
    runs.run_once(config, "x", lambda config: {"a": 1}, tmp_path)
    folder = runs.run_folder(config, "x", tmp_path)
    for name in ("checkpoint-000000003.safetensors",):
        (folder / name).write_bytes(b"")
    assert runs.run_once(config, "x", lambda config: {"a": 2}, tmp_path)["a"] == 1
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "config.json", "result.json"]


def test_an_unfinished_run_clears_what_was_half_written(tmp_path: Path) -> None:
    from test_sweep import Settings

    folder = runs.run_folder(Settings(), "x", tmp_path)
    folder.mkdir(parents=True)
    (folder / ".separable.pt.1").write_bytes(b"half")  # by a process of a number that lives: the folder is ours
    runs.run_once(Settings(), "x", lambda config: {}, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "config.json", "result.json"]


def test_a_checkpoint_of_another_run_is_one_line(tmp_path: Path) -> None:
    for tree in ({"done": 3}, {"done": 3, "seconds": 1.0, "parts": {"w": torch.ones(2)}}, [1]):
        for path in tmp_path.glob("*"):
            path.unlink()
        checkpoints.save_newest(tmp_path, 3, tree)
        with pytest.raises(InputError, match="another run's, or another version's") as refused:
            train(Line(), tmp_path)
        assert "\n" not in str(refused.value)


def test_a_full_disk_is_an_os_error_and_files_are_for_all_who_may_read_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors' own writer says so in its own way, and writes for its owner alone, under a name of its own."""
    checkpoints.save(tmp_path / "x", {"a": torch.ones(1)})
    (tmp_path / "y").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode
    original = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        assert path.name.startswith(".z.")
        original(path, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(tmp_path / "z", {"a": torch.ones(1)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_a_lost_rank_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks("cpu")
    ranks.size = 2
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    monkeypatch.setattr("torch.distributed.init_process_group", lambda *a, **k: None)
    waited: list[int] = []
    monkeypatch.setattr("torch.distributed.barrier", lambda: waited.append(1))
    with ranks:
        pass
    assert waited == [1], "the first rank stays until all others are done"

    def fails(error: BaseException) -> None:
        with ranks:
            raise error

    for lost in (
        RuntimeError("[a/gloo/pair.cc:553] Connection closed by peer"),
        torch.distributed.DistBackendError("NCCL"),
    ):
        with pytest.raises(LostRankError, match="rank 0 of 2 stops: another rank has died") as told:
            fails(lost)
        assert "\n" not in str(told.value)
    for other in (InputError("no"), RuntimeError("shapes differ"), KeyboardInterrupt()):
        with pytest.raises(type(other)) as same:
            fails(other)
        assert same.value is other
    assert waited == [1], "who fails does not wait"


def test_checkpoints_say_what_disks_do_to_them(tmp_path: Path) -> None:
    """Both damaged: from the beginning, to the same end."""
    whole, again = Line(), Line()
    train(whole, tmp_path / "whole")

    class Dies(Line):
        def after_step(self, batch: Any, at: Any) -> None:
            if at.done == 9:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Dies(), tmp_path / "cut", checkpoint_seconds=0.0)
    for path in (tmp_path / "cut").glob("checkpoint-*"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(RuntimeWarning, match="Going back"):
        train(again, tmp_path / "cut")
    assert torch.equal(again.parts.weight, whole.parts.weight)


def test_scenes_refuse_what_is_not_one_line(tmp_path: Path) -> None:
    def ended(said: str, code: int) -> processes.Started:
        (tmp_path / "log").write_text(said)
        return processes.Started(tmp_path / "log", {}, {0: code})

    scenes.refused(ended("mlcpc: No space left on device", 2), "No space left")
    for said, code in (("mlcpc: all well", 2), ("No space left", 1), ("Traceback: No space left", 2)):
        with pytest.raises(AssertionError):
            scenes.refused(ended(said, code), "No space left")


# --- numbers --------------------------------------------------------------------------------------------------------


def test_the_twin_is_the_formula_in_the_easiest_case() -> None:
    """n = 1, m = 2: log(1 + (β/α) e^(neg − pos)), whose slope is a sigmoid."""
    for objective in ("cpc", "ml_cpc"):
        value, gradient, _, _ = numerics.twin([[0.3, -0.2]], objective, 0.5)
        odds = 1.5 / 0.5 * math.exp(-0.5)
        assert float(value) == pytest.approx(math.log1p(odds), rel=1e-14)
        assert [float(g) for g in gradient[0]] == pytest.approx([-odds / (1 + odds), odds / (1 + odds)], rel=1e-14)


def test_the_twin_and_slow_loops_agree() -> None:
    import reference

    g = torch.Generator().manual_seed(3)
    rows = torch.randn(3, 4, generator=g, dtype=torch.float64) * 3
    for objective in ("cpc", "ml_cpc"):
        leaf = rows.clone().requires_grad_()
        bound = math.log(4 / 0.3) - reference.OBJECTIVES[objective](leaf[:, 0], leaf[:, 1:], 0.3)
        bound.backward()
        value, gradient, _, _ = numerics.twin(rows.tolist(), objective, 0.3)
        assert float(value) == pytest.approx(bound.item(), rel=1e-12)
        assert leaf.grad is not None
        ours = [float(x) for line in gradient for x in line]
        assert ours == pytest.approx(leaf.grad.flatten().tolist(), rel=1e-11, abs=1e-15)


@pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")
def test_hundred_problems_are_within_two_units_and_a_slip_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100):
        units = numerics.errors(numerics.problem(seed))
        assert units["value"] < 2
        assert units["gradient"] < 2
    original = numerics.loss
    monkeypatch.setattr(numerics, "loss", lambda *arguments: original(*arguments) * (1 + 1e-4))
    seen = [numerics.errors(numerics.problem(seed)) for seed in range(20)]
    assert sum(units["value"] > numerics.LIMIT for units in seen) >= 15


def test_many_digits_are_kept_where_terms_cancel() -> None:
    with mpmath.workdps(50):
        (value, _, _, _) = numerics.twin([[0.0, -80.0]], "cpc", 1.0)
        assert abs(float(value / mpmath.log1p(mpmath.exp(-80))) - 1) < 1e-10


@pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")
def test_the_streamed_twin() -> None:
    found = numerics.streamed(300)["relative_errors"]
    assert max(found.values()) < 1e-5


# --- long use -------------------------------------------------------------------------------------------------------


def test_a_slope_and_its_error() -> None:
    """A line with noise: within four errors; noise alone is flat."""
    chance = random.Random(1)
    noise = [chance.gauss(0, 1) for _ in range(1000)]
    for per in (0.0, 0.01):
        found, error = soak.slope([per * i + noise[i] for i in range(1000)])
        assert abs(found - per) < 4 * error
        assert 0 < error < 0.001


def test_a_leak_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leak = [0.0]

    def rounds(words: list[str], **more: Any) -> Any:
        same = {"open_files": 5, "threads": 1, "processor_seconds": 1.0}
        rows = [{**same, "memory_mb": 100 + i * leak[0]} for i in range(90)]
        Path(words[-1]).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return type("Ended", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(soak.subprocess, "run", rounds)
    for leak[0], failures in ((0.0, 0), (0.2, 1)):
        assert len(soak.run(1.0, tmp_path)["failures"]) == failures


# --- what is installed ----------------------------------------------------------------------------------------------


def test_an_audit_fails_for_what_is_known_and_only_for_that() -> None:
    package = {"name": "a", "version": "1"}
    for packages, words, code in (
        ([{**package, "vulns": []}], "1 packages, no known", 0),
        ([{**package, "skip_reason": "not found"}], "skipped", 0),
        ([{**package, "vulns": [{"id": "CVE-1"}]}], "a 1: CVE-1", 1),
    ):
        sentence, found = audit.judge(json.dumps({"dependencies": packages}), "")
        assert words in sentence
        assert found == code


def test_the_corpus_is_small_and_named_by_its_content() -> None:
    files = [path for path in (ROOT / "reliability" / "corpus").rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        assert len(content) <= 20_000
        assert path.name == hashlib.sha256(content).hexdigest()[:12]


def test_workers_leave_with_a_killed_parent(tmp_path: Path) -> None:
    """As when the kernel is short of memory: nobody is left to tell them."""
    import os
    import signal
    import subprocess
    import sys
    import time

    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{i % 17},{i * i % 23}\n" for i in range(3000)))
    command = [sys.executable, "-m", "mlcpc", "mi-matrix", str(path), "--no-fast", "--out", str(tmp_path / "out")]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(workers := processes.descendants(parent.pid)) < 2:  # one, and Python's resource tracker
        assert parent.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.5)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    while any(map(processes.alive, workers)):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_one_rank_of_several_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcpc.__main__ import leave

    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setenv("WORLD_SIZE", "2")
    leave(3)
    assert codes == [3]
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(SystemExit) as stop:
        leave(4)
    assert stop.value.code == 4
