"""What of a target is done is seen from its folders; finished runs are not repeated, interrupted ones go on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlcpc.cli import main
from mlcpc.reproduce import TARGETS, Target, reproduce, timing
from mlcpc.reproduce.standing import standing
from mlcpc.runs import Place, run_folder
from mlcpc.sweep import schedule

COMPUTED = [name for name, target in TARGETS.items() if target.jobs is None and not target.reads]
STUDIES = [name for name, target in TARGETS.items() if target.jobs is not None]


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcpc.plots.save", lambda *_: [])


class Stop(KeyboardInterrupt):
    pass


def stop_at(share: float) -> Any:
    def tick(done: float) -> None:
        if done >= share - 1e-9:
            raise Stop

    return tick


def go(target: Target, folder: Path, tick: Any = lambda done: None) -> dict[str, Any]:
    """Its result, kept below `folder`."""
    reproduce(target, "smoke", folder / "out", folder / "runs", False, tick)
    config = target.scales["smoke"].config
    return dict(json.loads((run_folder(config, target.section, folder / "runs") / "result.json").read_text()))


def said(target: Target, folder: Path) -> str:
    return str(standing(target, "smoke", folder / "out", folder / "runs"))


@pytest.mark.parametrize("name", COMPUTED)
def test_interrupted_it_goes_on_and_ends_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    config = target.scales["smoke"].config
    if name == "figure3":  # the smoke scale is shorter than the way from one checkpoint to the next
        config = replace(config, steps=600, critics=("separable",), hidden=8, batch=8)
        target = replace(target, scales={"smoke": target.scales["smoke"]._replace(config=config)})
    whole = go(target, tmp_path / "whole")
    again = tmp_path / "again"
    assert said(target, again) == "nothing"
    with pytest.raises(Stop):
        go(target, again, stop_at(0.5))
    known = {"figure3": "interrupted at 42 %", "timing": "interrupted at 50 %"}  # 500 of 1200 updates; 2 of 4 repeats
    assert said(target, again) == known.get(name, "interrupted")
    seen: list[float] = []
    result = go(target, again, seen.append)
    assert said(target, again) == "done and drawn"
    if name in known:
        assert seen[0] > 0.41  # from where it was
    own = ("seconds", "seconds_by_critic", "rows" if name == "timing" else "")
    assert {k: v for k, v in result.items() if k not in own} == {k: v for k, v in whole.items() if k not in own}
    assert not list((again / "runs").rglob("checkpoint-*"))
    go(target, again, lambda done: pytest.fail("computed twice"))


def test_repeats_of_the_timing_are_kept_but_not_those_of_another_machine(tmp_path: Path) -> None:
    config = TARGETS["timing"].scales["smoke"].config
    with pytest.raises(Stop):
        timing.compute(config, stop_at(0.5), tmp_path)
    path = tmp_path / timing.KEPT
    kept = json.loads(path.read_text())
    kept["seconds"]["separable"]["cpc"] = [77.0, 77.0]
    path.write_text(json.dumps(kept))
    rows = timing.compute(config, lambda done: None, tmp_path)["rows"]
    assert rows[0]["seconds"] == [77.0, 77.0]
    path.write_text(json.dumps(kept | {"threads": 99}))
    rows = timing.compute(config, lambda done: None, tmp_path)["rows"]
    assert 77.0 not in rows[0]["seconds"]
    assert len(rows) == 4


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    target = TARGETS["figure3"]
    config = target.scales["smoke"].config
    folder = run_folder(config, target.section, tmp_path / "runs")
    folder.mkdir(parents=True)
    assert said(target, tmp_path) == "nothing"
    (folder / "config.json").write_text("{}")
    assert said(target, tmp_path) == "interrupted at 0 %"
    (folder / "separable.pt").write_bytes(b"half")
    assert said(target, tmp_path) == "interrupted"


@pytest.mark.parametrize("name", STUDIES)
def test_of_a_table_only_what_is_missing_is_started(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs but three are done; one of these was begun."""
    target, runs = TARGETS[name], tmp_path / "runs"
    assert target.jobs is not None
    jobs = target.jobs(target.scales["smoke"].config, Place(runs=runs))
    total = len(jobs)
    assert said(target, tmp_path) == "nothing"
    for job in jobs[:-3]:
        job.folder.mkdir(parents=True)
        (job.folder / "result.json").write_text("{}")
    assert said(target, tmp_path) == f"{total - 3} of {total} runs done"
    jobs[-2].folder.mkdir(parents=True)
    (jobs[-2].folder / "config.json").write_text('{"epochs": 4}')
    (jobs[-2].folder / "metrics.jsonl").write_text('{"kind": "epoch", "epoch": 0, "seconds": 1}\n')
    assert said(target, tmp_path) == f"{total - 3} of {total} runs done, 1 begun (25 %)"
    engine = Engine()
    monkeypatch.setitem(schedule.ENGINES, "local", lambda *_: engine)
    monkeypatch.setattr("mlcpc.commands.reproduce.reproduce", lambda *_: pytest.fail("drawn"))
    with pytest.raises(BaseException, match="drawn"):
        main(["reproduce", name, "--scale", "smoke", "--out", str(tmp_path / "out"), "--runs", str(runs)])
    assert sorted(engine.started) == sorted(job.name for job in jobs[-3:])
    assert said(target, tmp_path) == "done, not drawn"


class Engine:
    """Finishes every job at once."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[Any] = []

    def room(self) -> int:
        return 1

    def start(self, state: Any) -> None:
        from mlcpc.sweep.child import Ending

        self.started.append(state.job.name)
        (state.job.folder / "result.json").write_text("{}")
        self.ended.append((state, Ending("done")))

    def news(self) -> list[Any]:
        ended, self.ended = self.ended, []
        return ended

    def ask(self, number: int = 15) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


def test_the_list_says_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["reproduce"]) == 0
    first = capsys.readouterr().out
    for name, target in TARGETS.items():
        assert f"\n{name}  {target.title}" in first
        for scale, (_, cost) in target.scales.items():
            assert scale in first
            assert cost.split(";")[0].split(":")[0] in first
    assert "done" not in first
    assert list(tmp_path.iterdir()) == []
    reproduce(TARGETS["figure1"], "smoke", Path("results"), Path("runs"), False, lambda done: None)
    assert main(["reproduce"]) == 0
    assert "done and drawn" in capsys.readouterr().out
    assert main(["reproduce", "--runs", "elsewhere"]) == 0
    assert "drawn; its runs are not here" in capsys.readouterr().out


def test_the_stated_cost_counts_the_runs() -> None:
    for name in STUDIES:
        for config, cost in TARGETS[name].scales.values():
            if cost[0].isdigit():
                jobs = TARGETS[name].jobs
                assert jobs is not None
                assert int(cost.split()[0]) == len(jobs(config, Place())), (name, cost)
