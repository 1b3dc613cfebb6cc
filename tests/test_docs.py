"""What the README claims is what results/ holds."""

import csv
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("target", "scale"),
    [("figure1", "paper"), ("figure2", "paper"), ("figure3", "demo"), ("figure3", "quick"), ("figure3", "paper")],
)
def test_committed_results_passed_their_checks(target: str, scale: str) -> None:
    stored = json.loads((ROOT / "results" / target / scale / "checks.json").read_text())
    assert stored["checks"]
    assert all(check["holds"] for check in stored["checks"])


def test_the_sentence_below_the_picture() -> None:
    rows = table("results/figure3/paper/figure3.csv")
    plain = [row for row in rows if float(row["alpha"]) == 1]
    assert "nothing passes log m = 4.85" in README
    assert {row["ceiling"] for row in plain} == {"4.852"}
    assert all(float(row["plateau_mean"]) < 4.852 for row in plain)
    small = [
        row for row in rows if float(row["alpha"]) < 1 and (row["objective"] == "cpc" or row["lower_bound"] == "True")
    ]
    over = {row["objective"] for row in small if float(row["plateau_mean"]) > float(row["mi_true"])}
    assert over == {"cpc"}
    assert max(float(row["plateau_mean"]) for row in small if row["objective"] == "ml_cpc") > 4.852


def test_the_table_of_speed_and_memory() -> None:
    """The README's rows are those of the benchmark's files."""
    for row in bench_rows():
        assert row in README, f"write in the README: {row}"


def bench_rows() -> list[str]:
    times = {
        row["way"]: float(row["ratio"])
        for row in table("results/bench/loss.csv")
        if (row["case"], row["n"], row["d"], row["dtype"]) == ("in-batch", "8192", "128", "float32")
    }
    memory = {
        row["way"]: float(row["extra_mb"]) for row in table("results/bench/loss_memory.csv") if row["n"] == "8192"
    }
    return [f"| {way} | {times[way]:.2f} | {memory[way]:.0f} MB |" for way in memory]


def table(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader((ROOT / path).read_text().splitlines()))


def test_files_that_pages_point_to_exist() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name} points to {link}"


def test_the_sentence_on_distillation() -> None:
    rows = {row["method"]: row["ours"] for row in table("results/table1/quick/table1.csv")}
    for method, words in (
        ("student", "plain student {} %"),
        ("CRD", "CRD {}"),
        ("J_0.05", "J_0.05 {}"),
        ("KD", "KD {}"),
    ):
        assert words.format(rows[method]) in " ".join(README.split())
