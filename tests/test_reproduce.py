"""Figures at smoke scale: real files, honest checks, nothing computed twice."""

import csv
import json
from pathlib import Path

import pytest

from mlcpc.bounds import ceiling, is_lower_bound
from mlcpc.cli import main
from mlcpc.config import to_dict
from mlcpc.reproduce import TARGETS, reproduce
from mlcpc.reproduce.figure3 import published
from mlcpc.reproduce.target import Drawing
from mlcpc.runs import run_once, write_text

TABLES = [name for name, target in TARGETS.items() if target.jobs]


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if not target.jobs and not target.reads])
def test_smoke_scale_writes_pictures_numbers_and_checks(name: str, tmp_path: Path) -> None:
    target, ticks = TARGETS[name], []
    folder, checks = reproduce(target, "smoke", tmp_path / "out", tmp_path / "runs", False, ticks.append)
    assert all(check.holds for check in checks), checks
    assert checks
    assert ticks[-1] == pytest.approx(1)
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    svg = (folder / f"{name}.svg").read_text()
    assert "scale: smoke" in svg
    rows = list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))
    assert {row["scale"] for row in rows} == {"smoke"}
    stored = json.loads((folder / "checks.json").read_text())
    assert [check["holds"] for check in stored["checks"]] == [True] * len(checks)
    reproduce(target, "smoke", tmp_path / "again", tmp_path / "runs", False, lambda _: pytest.fail("computed twice"))
    assert (tmp_path / "again" / name / "smoke" / f"{name}.svg").read_text() == svg


@pytest.mark.parametrize("name", TABLES)
def test_a_table_whose_runs_are_missing_says_so(name: str, tmp_path: Path) -> None:
    folder, checks = reproduce(TARGETS[name], "smoke", tmp_path, tmp_path / "runs", False, lambda _: None)
    assert not checks[0].holds
    assert json.loads((folder / "checks.json").read_text())["checks"][0]["holds"] is False


@pytest.mark.slow
def test_the_smoke_scale_of_every_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make smoke` has it: real runs in processes of their own, pictures, verdicts; a second call starts none."""
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "all", "--scale", "smoke", "--out", "out"]
    assert main(words) == 0
    assert {path.parent.parent.name for path in Path("out").glob("*/smoke/checks.json")} == set(TARGETS)
    for path in Path("out").glob("*/smoke/checks.json"):
        assert all(check["holds"] for check in json.loads(path.read_text())["checks"]), path
    assert "reproduced at smoke scale" in Path("out/claims/smoke/claims.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")} == before


def test_bits_are_nats_over_log_2(tmp_path: Path) -> None:
    folder, _ = reproduce(TARGETS["figure1"], "smoke", tmp_path, tmp_path / "runs", True, lambda _: None)
    svg = (folder / "figure1.svg").read_text()
    assert "expected estimate (bits)" in svg
    assert "1.000" in svg  # log 2


def test_a_false_number_fails_the_checks(tmp_path: Path) -> None:
    """The checks can fail: a result with one estimate raised above the truth does not pass."""
    target = TARGETS["figure1"]
    reproduce(target, "smoke", tmp_path, tmp_path / "runs", False, lambda _: None)
    (stored,) = (tmp_path / "runs").rglob("result.json")
    result = json.loads(stored.read_text())
    next(row for row in result["rows"] if row["lower_bound"])["mean"] = 0.7
    stored.write_text(json.dumps(result))
    _, checks = reproduce(target, "smoke", tmp_path, tmp_path / "runs", False, lambda _: None)
    assert not checks[0].holds


def test_a_failed_computation_leaves_no_result(tmp_path: Path) -> None:
    config = TARGETS["figure1"].scales["smoke"].config

    def broken(_):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        run_once(config, "binary", broken, tmp_path)
    assert not list(tmp_path.rglob("result.json"))
    assert run_once(config, "binary", lambda _: {"ok": 1}, tmp_path)["ok"] == 1


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_published_plateaus_come_with_the_package() -> None:
    paper = published()
    assert len(paper) == 98  # of 100: two cells lie outside the published canvas
    assert paper["joint", "cpc", 1.0, 2.0] == (1.831, 0.144)
    assert ("joint", "cpc", 0.0001, 10.0) not in paper
    assert {key[:2] for key in paper} == {(c, o) for c in ("joint", "separable") for o in ("cpc", "ml_cpc")}


def test_a_plateau_far_from_the_published_one_fails(tmp_path: Path) -> None:
    """Figure 3's checks can fail: the published numbers themselves pass, one of them moved by 0.2 does not."""
    paper, config = published(), TARGETS["figure3"].scales["paper"].config
    result = {"config": to_dict(config), "methods": []}
    for critic in config.critics:
        for objective, alpha in config.methods:
            means = [paper.get((critic, objective, alpha, level), (9.0, 0.0))[0] for level in config.levels]
            top = ceiling(config.batch, alpha)
            method = {"critic": critic, "objective": objective, "alpha": alpha, "ceiling": top, "highest": top}
            method |= {"lower_bound": is_lower_bound(alpha, config.batch, config.batch, objective), "window": 4000}
            result["methods"].append(
                {**method, "plateau_mean": means, "plateau_std": means, "curve": means, "smooth": means}
            )
    draw = TARGETS["figure3"].draw
    assert all(check.holds for check in draw(result, Drawing(tmp_path, "figure3", "paper")))
    joint = next(m for m in result["methods"] if (m["critic"], m["objective"]) == ("joint", "ml_cpc"))
    joint["plateau_mean"] = [joint["plateau_mean"][0] - 0.2, *joint["plateau_mean"][1:]]
    failed = [check for check in draw(result, Drawing(tmp_path, "figure3", "paper")) if not check.holds]
    assert [check.claim[:14] for check in failed] == ["ML-CPC, joint:"]
    assert "24 of 25; largest -0.20 at α = 1, 2 nats" in failed[0].measured
