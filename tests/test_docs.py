"""What the README claims is what results/ holds."""

import csv
import importlib.util
import json
from pathlib import Path

import pytest

from mlcpc.config import to_dict
from mlcpc.reproduce import TARGETS
from mlcpc.reproduce.claims import claims

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
_spec = importlib.util.spec_from_file_location("benchmarks_readme", ROOT / "benchmarks" / "readme.py")
assert _spec is not None
assert _spec.loader is not None
README_TOOL = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(README_TOOL)


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


@pytest.mark.parametrize("page", README_TOOL.pages(), ids=lambda page: page.name)
def test_the_numbers_between_marks_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()
    assert text == README_TOOL.written(text), "results/ says otherwise: make readme"
    assert text.count("<!-- numbers:") == text.count("<!-- /numbers -->") == len(README_TOOL.MARK.findall(text))


def test_every_number_is_shown_and_a_wrong_one_is_found() -> None:
    text = "".join(page.read_text() for page in README_TOOL.pages())
    assert {name for _, name, _, _ in README_TOOL.MARK.findall(text)} == set(README_TOOL.NUMBERS)
    wrong = README.replace("J_0.05 82.44", "J_0.05 92.44")
    assert wrong != README
    assert README_TOOL.written(wrong) == README
    with pytest.raises(KeyError, match="no numbers are called 'x'"):
        README_TOOL.written("<!-- numbers:x --><!-- /numbers -->")


def test_every_result_says_how_it_was_made() -> None:
    """Machine, command and n, as the target has them; a picture or a page, and the numbers behind it."""
    folders = [path.parent for path in (ROOT / "results").glob("*/*/checks.json")]
    assert len(folders) > 8
    for folder in folders:
        stored = json.loads((folder / "checks.json").read_text())
        target = TARGETS[folder.parent.name]
        assert (stored["target"], stored["scale"]) == (folder.parent.name, folder.name)
        assert stored["command"] == target.command(folder.name)
        assert stored["n"] == target.sample(target.scales[folder.name].config)
        assert stored["config"] == to_dict(target.scales[folder.name].config)
        assert stored["environment"]["device"]
        assert stored["computed_on"] if target.jobs else "seconds" in stored or target.reads
        assert (folder / f"{target.name}.csv").exists()
        assert (folder / f"{target.name}.{'md' if target.reads else 'svg'}").exists()


def test_the_verdicts_are_those_of_the_results() -> None:
    kept = json.loads((ROOT / "results/claims/best/checks.json").read_text())["claims"]
    assert kept == [claim._asdict() for claim in claims(ROOT / "results")], "make readme"


def table(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader((ROOT / path).read_text().splitlines()))
