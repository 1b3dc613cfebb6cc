"""Tables 1 to 4 and Figure 4: their runs are the commands they say, and what is drawn is what the runs found."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tyro

from mlcpc.cli import COMMANDS
from mlcpc.config import flags, to_dict
from mlcpc.distill.pairs import PAIRS
from mlcpc.pretrain.moco import Settings
from mlcpc.pretrain.probe import Linear
from mlcpc.pretrain.run import Pretraining, Probing
from mlcpc.reproduce import TARGETS, Target, reproduce
from mlcpc.reproduce.distillation import METHODS, Grid, parsed, published
from mlcpc.reproduce.paired import sign_flip_p
from mlcpc.reproduce.representation import name_of
from mlcpc.reproduce.representation import published as published34
from mlcpc.reproduce.target import Drawing
from mlcpc.runs import Place, run_folder

STUDIES = [target for target in TARGETS.values() if target.jobs is not None]


def command(words: tuple[str, ...] | list[str]) -> Any:
    return tyro.cli(COMMANDS, config=(tyro.conf.OmitArgPrefixes,), args=list(words))


@pytest.mark.parametrize("target", STUDIES, ids=lambda target: target.name)
def test_jobs_are_commands_that_mean_their_configs(target: Target, tmp_path: Path) -> None:
    place = Place(Path("data"), "cpu", tmp_path)
    for scale in target.scales.values():
        assert target.jobs is not None
        jobs = target.jobs(scale.config, place)
        names = [job.name for job in jobs]
        assert len(set(names)) == len(names)
        assert all(set(job.after) <= set(names[:i]) for i, job in enumerate(jobs))
        for job in jobs[:: 1 + len(jobs) // 30]:  # reading one takes a twentieth of a second
            meant = command(job.arguments)
            assert meant.place == place
            assert run_folder(meant.config, job.arguments[0], tmp_path) == job.folder


def test_flags_of_a_config_within_a_config() -> None:
    config = Pretraining("resnet8", "digits", settings=Settings(alpha="10:0.1", divide_by_alpha=False, queue=64))
    assert command(["pretrain", *flags(config)]).config == config
    probing = Probing(network="resnet8", augmented=False, linear=Linear(epochs=7, rate=0.5))
    assert command(["probe", *flags(probing)]).config == probing


def test_the_papers_grids() -> None:
    assert TARGETS["table1"].jobs is not None
    place = Place()
    # 7 pairs × 8 methods × 3 seeds share students: resnet20 has two teachers but one baseline
    table1, table2 = (TARGETS[f"table{i}"].scales["paper"].config for i in (1, 2))
    assert len(table1.cells()) == 7 * 8 * 3
    assert len(table2.cells()) == 6 * 8 * 3
    jobs = TARGETS["table1"].jobs(table1, place)
    teachers, baselines = 5, 6 * 3
    assert len(jobs) == teachers + baselines + 7 * 7 * 3
    assert TARGETS["figure4"].scales["paper"].config.pairs == tuple((p.teacher, p.student) for p in PAIRS)
    table3 = TARGETS["table3"].scales["paper"].config
    assert {(d, e) for d, e, *_ in table3.cells()} == {
        (d, e) for d in ("cifar10", "cifar100") for e in (200, 500, 1000)
    }


def test_every_published_number_is_found() -> None:
    paper = published()
    assert len(paper) == 13 * 9
    assert all((*pair.labels, method) in paper for pair in PAIRS for method in ("teacher", *METHODS))
    for name in ("table3", "table4"):
        config = TARGETS[name].scales["paper"].config
        labels = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}
        assert all((labels[d], name_of(o, a), e) in published34() for d, e, o, a, _, _ in config.cells())


@pytest.mark.parametrize("name", ["L_0.1", "J_0.05", "CRD", "KD"])
def test_names_of_methods(name: str) -> None:
    run = Grid((("resnet56", "resnet20"),)).run("resnet56", "resnet20", name, 0)
    assert (run.objective, run.alpha) == parsed(name)  # type: ignore[union-attr]


def result(top1: float, epochs: int) -> dict[str, Any]:
    rows = [
        {"epoch": e, "top1": top1, "loss": 1.0, "estimate": 2.0, "ceiling": 3.0, "alpha": 1.0} for e in range(epochs)
    ]
    return {
        "top1": top1,
        "top5": 1.0,
        "best_top1": top1 + 0.01,
        "best_epoch": 1,
        "knn_top1": top1 - 0.1,
        "seconds": 5.0,
        "curve": rows,
        "environment": {"device": "test", "torch": "0"},
    }


def put(config: Any, section: str, root: Path, top1: float) -> None:
    folder = run_folder(config, section, root)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps({"config": to_dict(config), **result(top1, 2)}))


def test_a_table_says_what_its_runs_found_and_what_is_missing(tmp_path: Path) -> None:
    config: Grid = replace(TARGETS["table1"].scales["quick"].config, methods=("student", "CRD", "J_0.05"), seeds=2)
    found = {"student": (0.80, 0.82), "CRD": (0.81, 0.85), "J_0.05": (0.84,)}
    put(config.teacher("resnet56"), "train", tmp_path, 0.9)
    for method, values in found.items():
        for seed, value in enumerate(values):
            run = config.run("resnet56", "resnet20", method, seed)
            put(run, "train" if method == "student" else "distill", tmp_path, value)
    target = replace(TARGETS["table1"], scales={"quick": TARGETS["table1"].scales["quick"]._replace(config=config)})
    folder, checks = reproduce(target, "quick", tmp_path / "out", tmp_path, False, lambda done: None)
    rows = {row["method"]: row for row in csv.DictReader((folder / "table1.csv").read_text().splitlines())}
    assert rows["teacher"]["ours"] == "90.0"
    assert (rows["CRD"]["ours"], rows["CRD"]["sd"], rows["CRD"]["published_cifar100"]) == ("83.0", "2.83", "71.16")
    assert (rows["J_0.05"]["ours"], rows["J_0.05"]["against_crd"], rows["J_0.05"]["seeds"]) == ("84.0", "3.0", "1")
    by = {check.claim: check for check in checks}
    assert not by["every run is done"].holds
    assert by["every run is done"].measured == "5 of 6"
    assert by["J_0.05 beats CRD on average"].holds
    assert by["CRD beats the plain student on average"].measured.startswith("+2.00 points, better in 2 of 2 runs")
    assert (folder / "table1.png").stat().st_size > 5000


def test_a_table_of_encoders(tmp_path: Path) -> None:
    study = TARGETS["table3"].scales["smoke"].config
    for i, cell in enumerate(study.cells()):
        put(study.run(*cell), "pretrain", tmp_path, 0.5)
        put(study.probe(cell, tmp_path), "probe", tmp_path, 0.4 + 0.1 * i)
    put(study.probe(None, tmp_path, "digits"), "probe", tmp_path, 0.3)
    target = replace(TARGETS["table3"], scales={"small": TARGETS["table3"].scales["smoke"]})
    folder, checks = reproduce(target, "small", tmp_path / "out", tmp_path, False, lambda done: None)
    rows = {row["objective"]: row for row in csv.DictReader((folder / "table3.csv").read_text().splitlines())}
    assert float(rows["random weights"]["ours"]) == pytest.approx(30)
    assert float(rows["J_10.0→J_0.1"]["ours"]) == pytest.approx(50)
    assert all(check.holds for check in checks)
    assert any(check.measured.startswith("+10.00 points over 1 pairs") for check in checks)


@pytest.mark.parametrize("target", STUDIES, ids=lambda target: target.name)
def test_a_table_without_any_run_says_so(target: Target, tmp_path: Path) -> None:
    config = next(iter(target.scales.values())).config
    found = target.compute(config, lambda done: None, run_folder(config, target.section, tmp_path))
    checks = target.draw({"config": to_dict(config), **found}, Drawing(tmp_path, target.name, "smoke"))
    assert not all(check.holds for check in checks)


def test_sign_flips() -> None:
    assert sign_flip_p([1.0] * 5) == 2 / 32
    assert sign_flip_p([1.0, -1.0, 2.0]) == pytest.approx(6 / 8)  # |mean| ≥ 2/3: of ±1±1±2, all but ±(1 + 1 − 2)
    assert math.isnan(sign_flip_p([]))
    many = [0.3 + 0.1 * math.sin(i) for i in range(30)]
    assert sign_flip_p(many) < 1e-3
