"""Sweeps: order, retries, signals, memory and devices, with tiny scripts for jobs."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from mlcpc.config import InputError
from mlcpc.runs import run_once
from mlcpc.sweep import Job, State, child, cluster, local, schedule, sweep, table, time_left
from mlcpc.sweep.child import Ending
from mlcpc.sweep.jobs import look


@dataclass(frozen=True)
class Settings:
    epochs: int = 1


#: A job: `python job.py FOLDER WHAT`, where WHAT lists what its first, second, ... attempt does; the last one stays.
SCRIPT = """
import json, os, signal, subprocess, sys, time
folder, what = sys.argv[1], sys.argv[2].split(",")
root, name = os.path.split(folder)
def note(word):
    with open(os.path.join(root, "events"), "a") as file:
        file.write(f"{word} {name}\\n")
def starts():
    return [line.split()[1] for line in open(os.path.join(root, "events")) if line.startswith("start")]
def write(file, text):
    with open(os.path.join(folder, "." + file), "w") as out:
        out.write(text)
    os.replace(os.path.join(folder, "." + file), os.path.join(folder, file))
def wait_for(what):
    until = time.monotonic() + 60
    while not what():
        if time.monotonic() > until:
            sys.exit("nothing came")
        time.sleep(0.01)
note("start")
deed = what[min(starts().count(name), len(what)) - 1]
if deed.startswith("meet"):  # wait until so many jobs were started
    _, count, deed = deed.split(":")
    wait_for(lambda: len(starts()) >= int(count))
if deed.startswith("as"):
    wait_for(lambda: os.path.exists(os.path.join(root, deed.split(":")[1], "result.json")))
    deed = "ok"
if deed == "crash":
    print("all well so far")
    raise ValueError("boom")
if deed == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if deed in ("bad", "busy"):
    words = {"bad": "epochs is 0 but must be 1 or more", "busy": "another process is computing this run: wait"}
    print("mlcpc:", words[deed], file=sys.stderr)
    sys.exit(2)
if deed in ("memory", "gpu"):
    note("end")
    sys.exit("torch.OutOfMemoryError: CUDA out of memory" if deed == "gpu" else "cannot go on: out of memory")
if deed in ("polite", "hold"):  # leaves when it is asked to; or goes on when it is let
    def leave(number, frame):
        write("checkpoint", str(number))
        sys.exit(130)
    signal.signal(signal.SIGINT, leave), signal.signal(signal.SIGTERM, leave)
    write("ready", str(os.getpid()))
    wait_for(lambda: deed == "hold" and os.path.exists(os.path.join(root, "go")))
    deed = "ok"
if deed == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    write("ready", str(grandchild.pid))
    time.sleep(60)
if deed == "ok":
    variables = {key: os.environ.get(key) for key in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")}
    write("result.json", json.dumps({"seconds": 7.5, **variables}))
    note("end")
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """make(name, what, *after) -> Job"""
    monkeypatch.setattr(schedule, "POLL", 0.01)
    monkeypatch.setattr(schedule, "LOOK", 0.05)
    monkeypatch.setattr(schedule, "PATIENCE", 0.1)
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    python = (sys.executable, "-I", "-S", str(script))
    return lambda name, what="ok", *after: Job(
        name, (str(tmp_path / name), what), tmp_path / name, after, program=python
    )


def run(jobs: list[Job], **settings: Any) -> list[State]:
    return sweep(jobs, **{"slots": 2, "devices": ("cpu",), **settings})


def events(folder: Path) -> list[tuple[str, str]]:
    return [(line.split()[0], line.split()[1]) for line in (folder / "events").read_text().splitlines()]


def at_once(lines: list[tuple[str, str]]) -> list[int]:
    """How many run after each event."""
    return list(accumulate(1 if word == "start" else -1 for word, _ in lines))


def alive(pid: int) -> bool:
    """Dead ones that nobody has waited for count as dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(what: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


class Pretended:
    """An engine without processes: each attempt ends as its job's list says, in random order."""

    def __init__(self, room: int, deeds: dict[str, list[str]], chance: random.Random) -> None:
        self.size, self.deeds, self.chance = room, {name: list(deeds[name]) for name in deeds}, chance
        self.running: list[State] = []
        self.done: set[str] = set()

    def room(self) -> int:
        return self.size - len(self.running)

    def start(self, state: State) -> None:
        assert set(state.job.after) <= self.done, f"{state.job.name} came too early"
        assert state not in self.running
        state.status = "running"
        self.running.append(state)
        assert len(self.running) <= self.size

    def news(self) -> list[tuple[State, Ending]]:
        if not self.running:
            return []
        state = self.running.pop(self.chance.randrange(len(self.running)))
        kind = self.deeds[state.job.name].pop(0)
        if kind == "done":
            self.done.add(state.job.name)
        return [(state, Ending(kind, kind))]

    def ask(self, number: int = 0) -> None:
        raise AssertionError("nobody asked")

    kill = ask

    def close(self) -> None:
        assert not self.running


@pytest.mark.parametrize("seed", range(40))
def test_every_job_ends_as_its_own_and_its_forerunners_fates_say(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "POLL", 0.0)
    chance = random.Random(seed)
    retries, names = chance.randrange(3), [f"j{i}" for i in range(15)]
    jobs, fates, deeds = [], {}, {}
    for i, name in enumerate(names):
        after = tuple(chance.sample(names[:i], min(i, chance.randrange(3))))
        deeds[name] = chance.choices(["failed", "lost", "memory", "refused"], (2, 1, 2, 1), k=chance.randrange(4))
        deeds[name].append("done")
        # The slow twin: what becomes of it, were it alone.
        failures, fate = 0, "done"
        for kind in deeds[name]:
            failures += kind in ("failed", "memory")
            if kind == "refused" or failures > retries:
                fate = "failed"
                break
        fates[name] = "blocked" if any(fates[other] != "done" for other in after) else fate
        jobs.append(Job(name, (), tmp_path / name, after))
    chance.shuffle(jobs)
    engine = Pretended(chance.randint(1, 4), deeds, chance)
    monkeypatch.setitem(schedule.ENGINES, "pretended", lambda slots, devices: engine)
    states = sweep(jobs, engine="pretended", retries=retries)
    assert {state.job.name: state.status for state in states} == fates
    for state in states:
        started = len(deeds[state.job.name]) - len(engine.deeds[state.job.name])
        assert state.attempts == started == (0 if state.status == "blocked" else started)
        if state.status == "blocked":
            assert fates[state.message.removesuffix(" failed")] == "failed"  # names the one to blame


def test_teachers_before_students_and_two_at_a_time(make: Any, tmp_path: Path) -> None:
    jobs = [make("s1", "ok", "t1", "t2"), make("s2", "ok", "t1"), make("t1", "meet:2:ok"), make("t2", "meet:2:ok")]
    states = run([*jobs, make("x"), make("y")])
    assert [(state.status, state.attempts, state.progress) for state in states] == [("done", 1, 1.0)] * 6
    assert all(state.seconds == 7.5 for state in states)  # what the result says, which counts what was before a resume
    lines = events(tmp_path)
    assert max(at_once(lines)) == 2
    assert {name for _, name in lines[:2]} == {"t1", "t2"}  # most waits for them
    assert max(lines.index(("end", "t1")), lines.index(("end", "t2"))) < lines.index(("start", "s1"))


@pytest.mark.parametrize(
    ("what", "status", "attempts", "message"),
    [
        ("crash,ok", "done", 2, ""),
        ("kill,nothing,ok", "done", 3, ""),
        ("crash", "failed", 3, "ValueError: boom"),
        ("kill", "failed", 3, "killed by SIGKILL"),
        ("nothing", "failed", 3, "ended without a result.json"),
        ("bad", "failed", 1, "epochs is 0 but must be 1 or more"),
        ("crash,bad", "failed", 2, "epochs is 0 but must be 1 or more"),
        ("busy,busy,ok", "done", 1, ""),
        ("memory", "failed", 3, "cannot go on: out of memory"),
    ],
)
def test_failures(what: str, status: str, attempts: int, message: str, make: Any) -> None:
    first, second = run([make("a", what), make("b", "ok", "a")])
    assert (first.status, first.attempts, first.message) == (status, attempts, message)
    assert (second.status, second.message) == (("done", "") if status == "done" else ("blocked", "a failed"))
    deeds = what.split(",")
    crashes = sum(deeds[min(i, len(deeds) - 1)] == "crash" for i in range(attempts))
    assert (first.job.folder / "log.txt").read_text().count("all well so far") == crashes  # every attempt's log is kept


def test_a_program_that_is_not_there(make: Any, tmp_path: Path) -> None:
    job = Job("a", (), tmp_path / "a", program=(str(tmp_path / "none"),))
    (state,) = run([job], retries=0)
    assert (state.status, state.attempts) == ("failed", 1)
    assert "none does not start: " in state.message


def test_what_is_done_is_not_started(make: Any, tmp_path: Path) -> None:
    run([make("a"), make("b", "bad")])
    again = run([make("a", "crash"), make("b", "ok", "a")])
    assert [(state.status, state.attempts) for state in again] == [("done", 0), ("done", 1)]
    assert events(tmp_path).count(("start", "a")) == 1


def test_a_result_counts_even_when_its_writer_then_dies(make: Any, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    job = make("a")
    code = f"import os; os.rename({str(tmp_path / 'job.py')!r}, {str(tmp_path / 'a' / 'result.json')!r}); os.abort()"
    (state,) = run([Job(job.name, ("-c", code), job.folder, program=(sys.executable,))])
    assert (state.status, state.attempts) == ("done", 1)


def test_out_of_memory_leaves_half_the_slots(make: Any, tmp_path: Path) -> None:
    """Four at once run out of memory: two at a time from then on, not one: they were all victims of the same four."""
    states = run([make(name, "meet:4:memory,meet:6:ok,crash") for name in "abcd"], slots=4)
    assert [(state.status, state.attempts) for state in states] == [("done", 2)] * 4
    lines = events(tmp_path)
    first = max(lines.index(("end", name)) for name in "abcd")
    assert max(at_once(lines)) == 4
    assert max(at_once(lines)[first:]) == 2


def test_a_gpu_too_small_for_one_does_not_idle_the_others(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    engine = local.Local(8, None)
    for i in range(4):
        state = State(make(f"j{i}", "gpu"), attempts=1)
        state.job.folder.mkdir()
        engine.start(state)
        until(engine.news)
        assert engine.slots == [4, 2, 2, 2][i]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_and_waited_for(number: signal.Signals, make: Any, tmp_path: Path) -> None:
    seen: list[State] = []
    before = signal.getsignal(number)

    def show(states: list[State]) -> None:
        seen[:] = states
        if all((tmp_path / name / "ready").exists() for name in "ab"):
            os.kill(os.getpid(), number)

    jobs = [make("a", "polite,ok"), make("b", "polite,ok"), make("c")]
    with pytest.raises(KeyboardInterrupt):
        run(jobs, show=show)
    assert [(tmp_path / name / "checkpoint").read_text() for name in "ab"] == [str(int(number))] * 2
    assert [state.status for state in seen] == ["waiting"] * 3
    assert signal.getsignal(number) is before
    assert [state.status for state in run(jobs)] == ["done"] * 3


@pytest.mark.parametrize("way", ["time", "twice"])
def test_the_deaf_are_killed_with_their_children(
    way: str, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "GRACE", 0.5 if way == "time" else 60.0)
    ready = tmp_path / "a" / "ready"

    def show(states: list[State]) -> None:
        if ready.exists():
            os.kill(os.getpid(), signal.SIGINT)
            if way == "twice":
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run([make("a", "deaf")], show=show)
    until(lambda: not alive(int(ready.read_text())), 2)


def test_an_error_of_ours_leaves_nobody_behind(make: Any, tmp_path: Path) -> None:
    def show(states: list[State]) -> None:
        if (tmp_path / "a" / "ready").exists():
            raise OSError("the terminal is gone")

    with pytest.raises(OSError, match="terminal"):
        run([make("a", "polite")], show=show)
    assert (tmp_path / "a" / "checkpoint").read_text() == str(int(signal.SIGTERM))


def test_runs_leave_when_the_sweep_is_killed_and_a_new_one_goes_on(make: Any, tmp_path: Path) -> None:
    jobs = [make("a", "polite,ok"), make("b", "polite,ok", "c"), make("c")]
    code = "import sys; from pathlib import Path; from mlcpc.sweep import *; sweep(eval(sys.argv[1]), slots=2)"
    text = repr(jobs).replace("PosixPath", "Path")
    killed = subprocess.Popen([sys.executable, "-c", "from mlcpc.sweep import jobs;" + code, text])
    ready = [tmp_path / name / "ready" for name in "ab"]
    until(lambda: all(path.exists() for path in ready), 60)
    killed.kill()
    killed.wait()
    until(lambda: not any(alive(int(path.read_text())) for path in ready))
    assert [(tmp_path / name / "checkpoint").read_text() for name in "ab"] == ["15", "15"]
    assert [(state.status, state.attempts) for state in run(jobs)] == [("done", 1), ("done", 1), ("done", 0)]


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_run_whose_guard_is_killed_leaves_too_and_goes_on(make: Any, tmp_path: Path) -> None:
    """As Ray does with the children of a worker that it ends."""
    ready, killed = tmp_path / "a" / "ready", []

    def show(states: list[State]) -> None:
        if ready.exists() and not killed:
            killed.append(int(Path(f"/proc/{ready.read_text()}/stat").read_text().rsplit(")", 1)[1].split()[1]))
            os.kill(killed[0], signal.SIGKILL)
            until(lambda: not alive(int(ready.read_text())))

    (state,) = run([make("a", "polite,ok")], show=show)
    assert (tmp_path / "a" / "checkpoint").read_text() == str(int(signal.SIGTERM))
    assert (state.status, state.attempts) == ("done", 2)


def test_busy_is_what_a_locked_run_says(tmp_path: Path) -> None:
    config = Settings()
    with pytest.raises(InputError) as said:
        run_once(config, "x", lambda config: run_once(config, "x", lambda config: {}, tmp_path), tmp_path)
    assert child.judge(2, f"mlcpc: {said.value}", f"mlcpc: {said.value}").kind == "busy"


def test_devices_are_shared_out_evenly(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(local, "cores", lambda: 11)
    states = run([make(str(i), "meet:4:ok") for i in range(4)], slots=4, devices=None)
    results = [json.loads((state.job.folder / "result.json").read_text()) for state in states]
    assert sorted(result["CUDA_VISIBLE_DEVICES"] for result in results) == ["3", "3", "5", "5"]
    assert {result["OMP_NUM_THREADS"] for result in results} == {"2"}
    assert local.find(("cuda:1",)) == {"cuda:1": "5"}
    with pytest.raises(InputError, match=r"'cuda:2' is not here: write some of cpu, cuda:0, cuda:1"):
        run([make("x")], devices=("cuda:2",))


def test_a_cpu_job_sees_no_gpu_and_its_share_of_cores(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(local, "cores", lambda: 12)
    (state,) = run([make("a")], slots=None)
    result = json.loads((state.job.folder / "result.json").read_text())
    assert (result["CUDA_VISIBLE_DEVICES"], result["OMP_NUM_THREADS"]) == ("", "2")  # six slots of two cores


@pytest.mark.parametrize(
    ("gpus", "free", "count", "slots"),
    [
        (0, 0, 9, 4),
        (0, 0, 1, 1),
        (1, 140, 16, 4),
        (2, 24, 16, 6),
        (2, 4, 16, 2),
        (2, 80, 6, 6),
        (8, 80, 4, 8),
        (1, 0, 4, 1),
    ],
)
def test_slots(gpus: int, free: int, count: int, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "cores", lambda: count)
    monkeypatch.setattr(local, "_free_memory", lambda gpus: free * 2**30)
    assert local.default_slots({f"cuda:{i}": str(i) for i in range(gpus)} or {"cpu": ""}) == slots


class Nodes:
    """As much of ray as counts its nodes."""

    def __init__(self, *nodes: tuple[int, int]) -> None:
        self.all = [{"Alive": True, "Resources": {"CPU": cpu, "GPU": gpu}} for cpu, gpu in nodes]
        self.all.append({"Alive": False, "Resources": {"CPU": 99, "GPU": 99}})

    def nodes(self) -> list[dict[str, Any]]:
        return self.all

    def remote(self, function: Any) -> Any:
        return function


@pytest.mark.parametrize(
    ("nodes", "settings", "cpus", "gpus", "room"),
    [
        ([(8, 0), (4, 0)], {}, 2, 0, 13),  # six fit; as many again and one may queue
        ([(1, 0), (1, 0)], {}, 1, 0, 5),
        ([(8, 0), (8, 0)], {"slots": 4}, 4, 0, 4),
        ([(8, 0), (8, 0)], {"slots": 1}, 8, 0, 1),  # no node has all 16
        ([(16, 2), (2, 1)], {}, 1, 0.25, 21),  # eight on the one; two cores are two jobs on the other
        ([(16, 2)], {"slots": 4}, 1, 0.5, 4),
        ([(16, 2)], {"devices": ("cpu",)}, 2, 0, 17),
    ],
)
def test_shares_of_a_cluster(
    nodes: Any, settings: Any, cpus: float, gpus: float, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "connect", lambda: (Nodes(*nodes), False))
    engine = cluster.Cluster(settings.get("slots"), settings.get("devices"))
    assert (engine.needs, engine.room()) == ({"num_cpus": cpus, "num_gpus": gpus}, room)
    given = dict(engine.needs)
    for _ in range(2):  # two that ran out of memory side by side
        engine.spread(given)
    share = "num_gpus" if gpus else "num_cpus"
    assert engine.needs[share] == min(1 if gpus else max(cpu for cpu, _ in nodes), 2 * given[share])


def test_a_cluster_chooses_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connect", lambda: (Nodes((4, 0)), False))
    for devices, message in ((("cuda:1",), "Ray chooses which"), (("cuda",), "no node of the cluster has a GPU")):
        with pytest.raises(InputError, match=message):
            cluster.Cluster(None, devices)


def job(name: str, *after: str, folder: str = "") -> Job:
    return Job(name, (), Path(folder or name), after)


@pytest.mark.parametrize(
    ("jobs", "settings", "message"),
    [
        ([job("a"), job("a", folder="b")], {}, "two jobs are called 'a'"),
        ([job("a"), job("b", folder="a")], {}, "jobs 'a' and 'b' both write to a"),
        ([job("a", "b")], {}, "'a' waits for 'b', which is no job"),
        (
            [job("a", "c"), job("b", "a"), job("c", "b")],
            {},
            "wait for each other: '[abc]' after '[abc]' after '[abc]' after",
        ),
        ([job("a", "a")], {}, "'a' after 'a'"),
        ([job("a")], {"slots": 0}, "slots is 0"),
        ([job("a")], {"retries": -1}, "retries is -1"),
        ([job("a")], {"engine": "slurm"}, "engine is 'slurm', which is not known: write one of local, ray"),
    ],
)
def test_bad_sweeps_are_refused_in_one_line(jobs: list[Job], settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        sweep(jobs, **settings)
    assert "\n" not in str(refused.value)


def test_a_circle_is_told_in_the_right_direction() -> None:
    with pytest.raises(InputError) as refused:
        sweep([job("a", "c"), job("b", "a"), job("c", "b")])
    told = str(refused.value).split(": ", 1)[1].split(".")[0].replace("'", "").split(" after ")
    assert all(later + earlier in ("ac", "ba", "cb") for later, earlier in pairwise(told))


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'mlcpc\[ray\]'"):
        sweep([job("a", folder="nowhere")], engine="ray")


def test_progress_is_read_from_a_run_that_is_still_writing(tmp_path: Path) -> None:
    state = State(Job("a", (), tmp_path), status="running")
    look(state)
    assert (state.progress, state.left) == (None, None)
    (tmp_path / "config.json").write_text('{"epochs": 8}')
    rows = [{"kind": "epoch", "epoch": 1, "seconds": 30.0}, {"kind": "step", "epoch": 2, "seconds": 31.0}]
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(rows[0]) + "\n")
    look(state)
    assert (state.progress, state.left) == (0.25, 90.0)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"kind": "epo')
    look(state)
    assert (state.progress, state.left) == (0.25, 93.0)


def states(*rows: dict[str, Any]) -> list[State]:
    return [State(job(str(i)), **row) for i, row in enumerate(rows)]


def test_time_left_is_exact_where_all_jobs_are_alike() -> None:
    """Jobs of 60 s, s at a time, seen at t: the twin counts them off."""
    for slots in (1, 3):
        for t in range(0, 240, 15):
            done, since = slots * (t // 60), t % 60
            total = 4 * slots
            rows = [{"status": "done", "seconds": 60.0}] * done
            rows += [{"status": "running", "seconds": float(since)}] * min(slots, total - done)
            rows += [{}] * (total - len(rows))
            left = time_left(states(*rows))
            assert left == (240 - t if done else None)


def test_time_left_goes_by_a_jobs_own_pace() -> None:
    running = {"status": "running", "seconds": 5.0, "progress": 0.75, "left": 100.0}
    assert time_left(states(running)) == 100
    assert time_left(states(running, {})) == 100 + 400
    assert time_left(states({"status": "done", "seconds": 50.0}, running, running, {})) == (100 + 100 + 50) / 2
    assert time_left(states({"status": "failed"}, {"status": "blocked"})) == 0
    assert time_left(states({})) is None


def test_the_table_shows_what_runs_and_what_failed() -> None:
    from rich.console import Console

    rows = states(
        {"status": "running", "seconds": 61.0, "progress": 0.5, "left": 60.0, "worker": "cuda:1", "attempts": 1},
        {"status": "failed", "message": "ValueError: [red]", "attempts": 3},
        {"message": "another process is computing this run"},
        {"status": "done", "seconds": 120.0},
        {"status": "blocked", "message": "1 failed"},
        {},
    )
    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(table(rows))
    console.file.close()
    text = console.export_text()
    assert "1 running, 1 done, 1 failed, 1 blocked, 2 waiting; about 5 min left" in text
    for words in ("50%", "cuda:1", "1 min", "ValueError: [red]", "another process"):
        assert words in text
    assert "blocked, 2" in text
    assert "1 failed" in text
    assert not [line for line in text.splitlines() if line.strip().startswith(("3", "5"))]
