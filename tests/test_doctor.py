"""`mlcpc doctor` finds what is wrong and says what to do; `mlcpc completion` teaches a shell."""

import json
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from mlcpc import doctor
from mlcpc.cli import main

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _steady(monkeypatch, tmp_path) -> None:
    """Whatever else the machine is doing: as many threads as cores, and bfloat16 as fast as float32."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCPC_DATA", str(tmp_path))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr(doctor, "_time_of", lambda dtype, size=0: 1.0)


def found(what: str, runs: Path = Path("runs")) -> doctor.Finding:
    (one,) = (finding for finding in doctor.examine(runs) if finding.what == what)
    return one


def test_a_sound_machine_is_exit_code_0_and_json_tells_the_same(capsys) -> None:
    assert main(["doctor"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert {"mlcpc", "torch", "runs", "data", "loss on cpu"} <= {finding["what"] for finding in findings}
    assert not [finding for finding in findings if finding["state"] in ("warning", "broken")]
    assert all(" ".join(finding["found"].split()) in words for finding in findings if finding["what"] != "runs")


def test_a_wrong_loss_is_broken_and_exit_code_1(monkeypatch, capsys) -> None:
    right = doctor.contrastive_loss
    monkeypatch.setattr(doctor, "contrastive_loss", lambda *a, **k: 1.01 * right(*a, **k))
    assert found("loss on cpu").state == "broken"
    assert main(["doctor"]) == 1
    assert "1 broken" in capsys.readouterr().out


def test_a_check_that_fails_is_a_finding(monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(doctor, "contrastive_loss", fail)
    assert found("check") == doctor.Finding(
        "check", "no kernel image is available", "broken", "install mlcpc and torch again"
    )


def test_runs_that_cannot_be_written(tmp_path) -> None:
    (tmp_path / "taken").touch()
    one = found("runs", tmp_path / "taken" / "runs")
    assert one.state == "broken"
    assert "write --runs" in one.advice


def test_finished_runs_are_counted_and_a_full_disk_is_a_warning(tmp_path, monkeypatch) -> None:
    (tmp_path / "runs" / "train" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "train" / "a" / "result.json").touch()
    assert found("runs").found.startswith("runs: 1 finished runs, ")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    assert found("runs").state == "warning"


def test_missing_and_old_packages(monkeypatch) -> None:
    right = metadata.version

    def version(name: str) -> str:
        if name == "scipy":
            raise metadata.PackageNotFoundError(name)
        return "0.1.2" if name == "safetensors" else right(name)

    monkeypatch.setattr(metadata, "version", version)
    assert "scipy: pip install 'mlcpc[mi]'" in found("[mi]").advice
    assert " or newer (this is 0.1.2): pip install 'mlcpc[train]'" in found("[train]").advice


def test_what_would_be_slow(monkeypatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    assert "OMP_NUM_THREADS=2" in found("threads").advice
    monkeypatch.setattr(doctor, "_time_of", lambda dtype, size=0: 3.0 if "bfloat" in str(dtype) else 1.0)
    assert "--precision float32" in found("bfloat16").advice


def test_data_sets_that_are_there(tmp_path, monkeypatch) -> None:
    (tmp_path / "cifar-100-binary").mkdir()
    for part in ("train.bin", "test.bin"):
        (tmp_path / "cifar-100-binary" / part).touch()
    (tmp_path / "imagenet").mkdir()
    assert found("data").found.endswith("holds imagenet, cifar100")
    (tmp_path / "cifar-10-binary.tar.gz").write_text("half")
    damaged, _ = (finding for finding in doctor.examine(Path("runs")) if finding.what == "data")
    assert "damaged" in damaged.found
    assert damaged.advice == "delete it and get it again"
    monkeypatch.setenv("MLCPC_DATA", str(tmp_path / "nowhere"))
    assert found("data").state == "warning"


def test_every_extra_for_users_is_looked_at() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(extras) - {"dev", "docs"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["completion", shell])
    assert not stop.value.code
    script = capsys.readouterr().out
    assert all(word in script for word in ("pretrain", "doctor", "epochs"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_bash_completes(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)
    lines = (
        "source ./script",
        "COMP_WORDS=(mlcpc pret) COMP_CWORD=1; _tyro_mlcpc; echo ${COMPREPLY[@]}",
        "COMP_WORDS=(mlcpc pretrain --epo) COMP_CWORD=2; _tyro_mlcpc; echo ${COMPREPLY[@]}",
    )
    out = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert out.stdout.split() == ["pretrain", "--epochs"]
