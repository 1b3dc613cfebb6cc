"""A sweep on a real Ray cluster of two nodes on this machine, one of them killed under its job.

Run as a program this is the sweep: ray's threads and signal handlers stay out of the test's process.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mlcpc.sweep import Job, State, sweep
from test_sweep import SCRIPT, at_once, events, until

#: Listen on 127.0.0.1 only, report to nobody.
QUIET = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
HEALTH = {"health_check_period_ms": 500, "health_check_failure_threshold": 3, "health_check_timeout_ms": 500}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray: pip install 'mlcpc[ray]'")
def test_a_sweep_survives_the_loss_of_a_node(tmp_path: Path) -> None:
    out = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **QUIET},
    )
    assert out.returncode == 0, (out.stdout + out.stderr)[-3000:]
    said = json.loads((tmp_path / "said.json").read_text())
    ends = {state["job"]["name"]: state for state in said["states"]}
    expected = {
        "t1": "done",
        "t2": "done",
        "s1": "done",
        "s2": "done",
        "crash": "done",
        "bad": "failed",
        "b": "blocked",
    }
    assert {name: state["status"] for name, state in ends.items()} == expected
    assert ends["bad"]["message"] == "epochs is 0 but must be 1 or more"
    assert ends["b"]["message"] == "bad failed"
    # The job on the lost node was asked to leave by its guard, wrote its checkpoint, and was started again; only that.
    moved = [name for name in ("t1", "t2") if (tmp_path / "w" / name / "checkpoint").exists()]
    assert len(moved) == 1
    attempts = {name: state["attempts"] for name, state in ends.items()}
    assert attempts == {name: {"crash": 2, "b": 0}.get(name, 1) + (name in moved) for name in ends}
    lines = events(tmp_path / "w")
    for teacher, student in (("t1", "s1"), ("t2", "s2")):
        assert lines.index(("end", teacher)) < lines.index(("start", student))
    assert said["running"] == ["t1", "t2"]
    # Asked to stop, the sweep waited for its run's checkpoint; on a Ray of its own it listens on this machine only.
    assert said["checkpoint"] == str(int(signal.SIGTERM))
    assert said["addresses"] == ["127.0.0.1"]
    assert said["own"] == ["done", "done"]
    assert max(at_once(events(tmp_path / "own"))) == 2


def cluster_of_two() -> tuple[Any, Any]:
    from ray.cluster_utils import Cluster

    node = {
        "num_cpus": 1,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
        "object_store_memory": 80 * 2**20,
    }
    cluster = Cluster(initialize_head=True, head_node_args={**node, "_system_config": HEALTH})
    return cluster, cluster.add_node(**node)


def main(root: Path) -> None:
    script = root / "job.py"
    script.write_text(SCRIPT)

    def make(folder: str, name: str, what: str = "ok", *after: str) -> Job:
        run = root / folder / name
        run.parent.mkdir(exist_ok=True)
        return Job(name, (str(run), what), run, after, (sys.executable, "-I", "-S", str(script)))

    said: dict[str, Any] = {}
    cluster, second = cluster_of_two()
    os.environ["RAY_ADDRESS"] = cluster.address

    def lose_a_node(states: list[State]) -> None:
        if "running" not in said and all((root / "w" / name / "ready").exists() for name in ("t1", "t2")):
            said["running"] = [state.job.name for state in states if state.status == "running"]
            cluster.remove_node(second, allow_graceful=False)
            until(lambda: any((root / "w" / name / "checkpoint").exists() for name in ("t1", "t2")), 50)
            (root / "w" / "go").touch()

    jobs = [make("w", "s1", "ok", "t1"), make("w", "s2", "ok", "t2"), make("w", "t1", "hold"), make("w", "t2", "hold")]
    jobs += [make("w", "crash", "crash,ok"), make("w", "bad", "bad"), make("w", "b", "ok", "bad")]
    said["states"] = [asdict(state) for state in sweep(jobs, engine="ray", show=lose_a_node)]

    def stop(states: list[State]) -> None:
        if (root / "w" / "polite" / "ready").exists():
            os.kill(os.getpid(), signal.SIGINT)

    try:
        sweep([make("w", "polite", "polite")], engine="ray", show=stop)
    except KeyboardInterrupt:
        said["checkpoint"] = (root / "w" / "polite" / "checkpoint").read_text()
    cluster.shutdown()

    del os.environ["RAY_ADDRESS"]

    def note(states: list[State]) -> None:
        import ray

        if ray.is_initialized():
            said["addresses"] = [node["NodeManagerAddress"] for node in ray.nodes()]

    own = [make("own", "a", "meet:2:ok"), make("own", "b", "meet:2:ok")]
    said["own"] = [state.status for state in sweep(own, engine="ray", slots=2, devices=("cpu",), show=note)]
    (root / "said.json").write_text(json.dumps(said, default=str))


if __name__ == "__main__":
    started = time.monotonic()
    main(Path(sys.argv[1]))
    print(f"{time.monotonic() - started:.0f} s")
