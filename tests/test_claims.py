"""The paper's claims: its own numbers pass every rule, made-up ones fail each, and what is not there is not run."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from mlcpc.bounds import ceiling, is_lower_bound
from mlcpc.distill.pairs import PAIRS
from mlcpc.reproduce import TARGETS, figure3, representation, reproduce, timing
from mlcpc.reproduce.claims import BEST, Claim, claims, summary
from mlcpc.reproduce.distillation import FIGURE4, METHODS, published
from mlcpc.reproduce.paired import Cell, gain, t_tail
from mlcpc.reproduce.rules import RULES

Row = dict[str, Any]
World = dict[str, list[Row]]
CONFIGS: dict[str, dict[str, Any]] = {
    "figure1": {},
    "figure2": {},
    "figure3": {},
    "timing": {},
    "table1": {"pairs": [p.labels for p in PAIRS if p.table == "table1"], "seeds": 3},
    "table2": {"pairs": [p.labels for p in PAIRS if p.table == "table2"], "seeds": 3},
    "figure4": {"pairs": [p.labels for p in PAIRS], "seeds": 3},
    "table3": {"data": ["cifar10", "cifar100"], "epochs": [200, 500, 1000], "seeds": 1},
    "table4": {"data": ["imagenet"], "epochs": [30], "seeds": 3},
}


@pytest.fixture
def world() -> World:
    """The published numbers of every figure and table; what the paper leaves out (spreads, Figure 4) is made up."""
    binary = {}
    for name in ("figure1", "figure2"):
        target = TARGETS[name]
        found = target.compute(target.scales["smoke"].config, lambda done: None, Path())
        binary[name] = [{k: str(v) for k, v in {**row, "truth": found["truth"]}.items()} for row in found["rows"]]
    binary["figure2"] = [r for r in binary["figure2"] if (r["alpha"] == "1.0") == (r["objective"] == "cpc")]
    plateaus = [
        {
            **{"critic": critic, "objective": objective, "alpha": alpha, "mi_true": level},
            **{"plateau_mean": mean, "plateau_std": sd, "ceiling": ceiling(128, alpha), "difference": ""},
            "lower_bound": is_lower_bound(alpha, 128, 128, objective),
        }
        for (critic, objective, alpha, level), (mean, sd) in figure3.published().items()
    ]
    times = [
        {"critic": critic, "objective": objective, "updates": 200, "repeats": 5, "mean_seconds": mean}
        | {"sd_seconds": sd, "flops_per_update": 7}
        for critic in ("separable", "joint")
        for objective, (mean, sd) in timing.PUBLISHED.items()
    ]
    paper = published()
    tables: World = {
        table: [
            {"pair": str(pair), "method": method, "ours": paper[*pair.labels, method], "sd": 0.1, "seeds": 3}
            for pair in PAIRS
            if pair.table == table
            for method in METHODS
        ]
        for table in ("table1", "table2")
    }
    tables["figure4"] = [
        {"pair": str(pair), "method": m, "ours": 75.0 - float(m.partition("_")[2] or 0), "sd": 0.1, "seeds": 3}
        for pair in PAIRS
        for m in FIGURE4
    ]
    encoders = [
        {"data": data.replace("-", "").lower(), "epochs": epochs, "objective": name, "divided_by_alpha": True}
        | {"ours": value, "sd": float("nan"), "seeds": 1}
        for (data, name, epochs), value in representation.published().items()
    ]
    tables["table3"] = [row for row in encoders if row["data"] != "imagenet"]
    tables["table3"] += [row | {"divided_by_alpha": False} for row in tables["table3"] if row["objective"] == STEEP]
    tables["table4"] = [row | {"sd": 0.1, "seeds": 3} for row in encoders if row["data"] == "imagenet"]
    return {**binary, "figure3": plateaus, "timing": times, **tables}


def write(world: World, out: Path, scale: str = "paper") -> None:
    for target, rows in world.items():
        folder = out / target / scale
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{target}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["scale", *rows[0]])
            writer.writeheader()
            writer.writerows({"scale": scale, **row} for row in rows)
        (folder / "checks.json").write_text(json.dumps({"checks": [], "config": CONFIGS[target]}))


def judged(out: Path, **more: Any) -> dict[str, Claim]:
    return {claim.name: claim for claim in claims(out, **more)}


def test_the_papers_own_numbers_pass_every_rule(world: World, tmp_path: Path) -> None:
    write(world, tmp_path)
    found = judged(tmp_path)
    assert {name: claim for name, claim in found.items() if claim.verdict != "reproduced"} == {}
    assert all(claim.measured and claim.scale == "paper" for claim in found.values())
    assert all((tmp_path / source).exists() for claim in found.values() for source in claim.source.split(", "))
    assert "9 of 13" not in found["ten-of-thirteen"].measured
    assert "10 of 13" in found["ten-of-thirteen"].measured


def cells(**known: Any) -> Callable[[World], list[Row]]:
    target = known.pop("target")
    return lambda world: [r for r in world[target] if all(str(r[k]) == str(v) for k, v in known.items())]


def shift(rows: Callable[[World], list[Row]], by: float, column: str = "ours") -> Callable[[World], None]:
    def change(world: World) -> None:
        assert rows(world)
        for row in rows(world):
            row[column] = float(row[column]) + by

    return change


def method(name: str, *tables: str) -> Callable[[World], list[Row]]:
    return lambda world: [row for table in tables for row in world[table] if row["method"] == name]


def stair(objective: str, guaranteed: bool, below_one: bool = True) -> Callable[[World], list[Row]]:
    return lambda world: [
        row
        for row in world["figure3"]
        if (row["objective"], row["lower_bound"], row["alpha"] < 1) == (objective, guaranteed, below_one)
    ]


def hold_down(rows: Callable[[World], list[Row]], top: float | None = None) -> Callable[[World], None]:
    def change(world: World) -> None:
        for row in rows(world):
            row["plateau_mean"] = min(row["plateau_mean"], row["mi_true"] if top is None else top)

    return change


def last(rows: Callable[[World], list[Row]], **values: Any) -> Callable[[World], None]:
    return lambda world: rows(world)[-1].update(values)


def like_alpha_1(column: str) -> Callable[[World], None]:
    """Whatever α is, the same number."""

    def change(world: World) -> None:
        plain = {(r["critic"], r["mi_true"]): r[column] for r in stair("ml_cpc", True, False)(world)}
        for row in stair("ml_cpc", True)(world):
            row[column] = plain[row["critic"], row["mi_true"]]

    return change


def loses(count: int) -> Callable[[World], None]:
    """On so many more pairs the small α are all below CRD."""

    def change(world: World) -> None:
        for pair in [str(p) for p in PAIRS][:count]:
            for row in [r for table in ("table1", "table2") for r in world[table] if r["pair"] == pair]:
                row["ours"] = 70.0 if row["method"] in ("L_0.1", "J_0.05", "J_0.01") else 71.0

    return change


BOTH = ("table1", "table2")
STEEP = "J_10.0→J_0.1"
SHORT = {"target": "table3", "epochs": 200}
FAILS: dict[str, Callable[[World], None]] = {
    "example-1": last(cells(target="figure1", objective="cpc", n=3, alpha=0.5), mean=0.69),
    "binary-bound": last(cells(target="figure1", objective="ml_cpc", lower_bound=True), mean=0.6932),
    "less-bias": last(cells(target="figure2", objective="ml_cpc", n=128), bias=1.0),
    "more-variance": last(cells(target="figure2", objective="ml_cpc", n=128), variance=0.0),
    "capped": last(stair("cpc", True, False), plateau_mean=4.9),
    "above-log-m": hold_down(stair("ml_cpc", True), 4.85),
    "cpc-overshoots": hold_down(stair("cpc", False)),
    "ml-cpc-below": last(stair("ml_cpc", True), plateau_mean=10.1),
    "ml-cpc-below-in-general": last(stair("ml_cpc", False), plateau_mean=10.1),
    "bias-falls": like_alpha_1("plateau_mean"),
    "variance-rises": like_alpha_1("plateau_std"),
    "same-cost": last(cells(target="timing", objective="ml_cpc"), mean_seconds=1.3),
    "J_0.05-over-CRD-table1": shift(method("J_0.05", "table1"), -0.1),
    "J_0.01-over-CRD-table1": shift(method("CRD", "table1"), 0.2),
    "J_0.05-over-CRD-table2": shift(method("J_0.05", "table2"), -1),
    "J_0.01-over-CRD-table2": shift(method("J_0.01", "table2"), -1),
    "ten-of-thirteen": loses(2),
    "CRD-over-L_1": shift(method("L_1.0", *BOTH), 0.2),
    "CRD-over-J_1": shift(method("J_1.0", *BOTH), 0.4),
    "small-alpha-cpc": shift(method("L_0.1", *BOTH), -1),
    "small-alpha-ml-cpc": shift(method("J_1.0", *BOTH), 1),
    "ml-cpc-over-cpc": shift(method("L_0.1", *BOTH), 1),
    "figure4": shift(method("J_1.0", "figure4"), 5),
    "ml-cpc-pretraining": shift(cells(target="table3", objective="L_1.0"), 0.4),
    "curriculum-over-cpc": shift(cells(objective="L_1.0", **SHORT), 3),
    "curriculum-as-printed": shift(cells(objective=STEEP, divided_by_alpha=False, **SHORT), -3),
    "curriculum-over-fixed": shift(cells(objective="J_1.0→J_1.0", **SHORT), 3),
    "curriculum-imagenet": shift(cells(target="table4", objective="L_1.0"), 1),
}


def test_there_is_a_counterexample_to_every_rule() -> None:
    assert set(FAILS) == {rule.name for rule in RULES}
    assert len(RULES) == len(FAILS)


@pytest.mark.parametrize("name", FAILS)
def test_each_rule_can_fail(name: str, world: World, tmp_path: Path) -> None:
    FAILS[name](world)
    write(world, tmp_path)
    claim = judged(tmp_path)[name]
    assert claim.verdict == "not reproduced", claim
    assert claim.scale == "paper"


def test_other_products_are_another_cost(world: World, tmp_path: Path) -> None:
    last(cells(target="timing", objective="ml_cpc"), flops_per_update=8)(world)
    write(world, tmp_path)
    assert judged(tmp_path)["same-cost"].verdict == "not reproduced"


def test_a_gain_within_the_spread_of_seeds_is_chance(world: World, tmp_path: Path) -> None:
    """The same means, other spreads."""
    for row in world["table1"]:
        row["sd"] = 0.5
    write(world, tmp_path)
    claim = judged(tmp_path)["J_0.05-over-CRD-table1"]
    assert claim.verdict == "not reproduced"
    assert "+0.06 ± 0.15 points" in claim.measured
    assert "no more than chance" in claim.measured


def test_the_best_scale_that_can_tell(world: World, tmp_path: Path) -> None:
    tables = {name: world[name] for name in BOTH}
    write(tables, tmp_path, "quick")
    found = judged(tmp_path)
    assert found["J_0.05-over-CRD-table1"].verdict == "reproduced at quick scale"
    assert found["J_0.05-over-CRD-table1"].source == "table1/quick/table1.csv"
    assert found["capped"] == Claim("capped", found["capped"].text, "not run", "", "", "mlcpc reproduce figure3")
    for row in tables["table1"]:
        row["seeds"], row["ours"] = 2, 0.0
    write({"table1": tables["table1"]}, tmp_path, "paper")  # a third seed is missing, and Table 2
    found = judged(tmp_path)
    assert found["J_0.05-over-CRD-table1"].scale == "quick"
    assert found["CRD-over-L_1"].scale == "quick"
    (tmp_path / "table1" / "quick" / "table1.csv").unlink()
    missing = judged(tmp_path)["J_0.05-over-CRD-table1"]
    assert (missing.verdict, missing.scale) == ("not run", "")
    assert missing.measured == "paper scale: 7 of 7 comparisons, 2 of 3 seeds are there"


def test_single_runs_of_one_cell_tell_no_spread(world: World, tmp_path: Path) -> None:
    rows = [row | {"seeds": 1, "sd": float("nan")} for row in world["table4"]]
    write({"table4": rows}, tmp_path)
    path = tmp_path / "table4" / "paper" / "checks.json"
    path.write_text(json.dumps({"config": CONFIGS["table4"] | {"seeds": 1}}))
    claim = judged(tmp_path)["curriculum-imagenet"]
    assert (claim.verdict, claim.measured) == (
        "not run",
        "paper scale: +0.36 points, one run each: no spread to judge it by",
    )


def test_smoke_tells_only_who_asks_for_it(world: World, tmp_path: Path) -> None:
    write({"figure1": world["figure1"]}, tmp_path, "smoke")
    assert {claim.verdict for claim in claims(tmp_path)} == {"not run"}
    assert judged(tmp_path, scales=("smoke",))["example-1"].verdict == "reproduced at smoke scale"
    assert {scale for target in TARGETS.values() for scale in target.scales} == {*BEST, "smoke", "best"}


@pytest.mark.parametrize("text", ["", "scale,critic\npaper,joint\n", "scale,objective\n", "\x00\n"])
def test_what_cannot_be_read_is_not_run(text: str, world: World, tmp_path: Path) -> None:
    write(world, tmp_path)
    for name in ("figure3", "table1", "timing"):
        (tmp_path / name / "paper" / f"{name}.csv").write_text(text)
    (tmp_path / "table3" / "paper" / "checks.json").write_text("{")
    (tmp_path / "table4" / "paper" / "checks.json").unlink()
    found = judged(tmp_path)
    for name in ("capped", "bias-falls", "same-cost", "J_0.05-over-CRD-table1", "curriculum-over-cpc"):
        assert found[name].verdict == "not run", found[name]
    assert "draw it again" in found["curriculum-imagenet"].measured
    assert found["example-1"].verdict == "reproduced"


def test_an_empty_folder_and_none(tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "none"):
        found = claims(out)
        assert {claim.verdict for claim in found} == {"not run"}
        assert all(claim.source.startswith("mlcpc reproduce ") for claim in found)


def test_the_target_writes_verdicts_and_keeps_no_run(world: World, tmp_path: Path) -> None:
    write(world, tmp_path / "out")
    for expected in ("28 reproduced", "27 reproduced, 1 not reproduced"):
        folder, checks = reproduce(
            TARGETS["claims"], "best", tmp_path / "out", tmp_path / "runs", False, lambda _: None
        )
        assert checks == []
        assert expected + "." in (folder / "claims.md").read_text()
        rows = list(csv.DictReader((folder / "claims.csv").read_text().splitlines()))
        assert [row["name"] for row in rows] == [rule.name for rule in RULES]
        kept = json.loads((folder / "checks.json").read_text())
        assert summary([Claim(**claim) for claim in kept["claims"]]) == expected
        FAILS["capped"](world)  # judged anew each time
        write(world, tmp_path / "out")
    assert not (tmp_path / "runs").exists()


def test_judging_what_this_program_drew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns that the rules read are those that the targets write."""
    monkeypatch.setattr("mlcpc.plots.save", lambda *_: [])
    for name in ("figure1", "figure2", "figure3", "timing"):
        reproduce(TARGETS[name], "smoke", tmp_path, tmp_path / "runs", False, lambda _: None)
    found = judged(tmp_path, scales=("smoke",))
    for name in ("example-1", "binary-bound", "less-bias", "more-variance", "capped"):
        assert found[name].verdict == "reproduced at smoke scale"
    assert found["above-log-m"].verdict == "not reproduced"  # nobody learns in 20 updates
    assert found["same-cost"].measured == "smoke scale: too few updates to be timed"


def test_students_t() -> None:
    for df in range(1, 40):
        for t in (-30.0, -1.0, 0.0, 0.3, 1.7, 4.0, 50.0):
            assert t_tail(t, df) == pytest.approx(scipy.stats.t.sf(t, df), abs=1e-12)


def test_gains_over_seeds_and_over_single_runs() -> None:
    """Against scipy's tests of the same samples."""
    a, b = [80.1, 80.5, 80.9], [79.8, 80.4, 79.9]
    both = [scipy.stats.describe(x) for x in (a, b)]
    found = gain([(Cell(*_moments(both[0])), Cell(*_moments(both[1])))])
    expected = scipy.stats.ttest_ind(a, b, alternative="greater")
    assert (found.p, found.mean) == pytest.approx((expected.pvalue, sum(a) / 3 - sum(b) / 3))
    nan = float("nan")
    single = gain([(Cell(x, nan, 1), Cell(y, nan, 1)) for x, y in zip(a, b, strict=True)])
    assert single.p == pytest.approx(scipy.stats.ttest_rel(a, b, alternative="greater").pvalue)
    assert gain([(Cell(1, 0, 2), Cell(0, 0, 2))]).p == 0


def _moments(described: Any) -> tuple[float, float, int]:
    return described.mean, described.variance**0.5, described.nobs
