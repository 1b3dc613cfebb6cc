"""`make readme`: judge the claims anew, and write the numbers between the marks in README.md and docs from results/.

A mark is an HTML comment, so that nobody sees it: <!-- numbers:NAME -->…<!-- /numbers -->. What stands between them is
written here, everything else by people; `tests/test_docs.py` fails where the two differ from results/.
"""

import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.tables import TABLES, results
from mlcpc.reproduce import TARGETS, reproduce
from mlcpc.reproduce.claims import claims, summary

__all__ = ["NUMBERS", "ROOT", "pages", "written"]

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"(<!-- numbers:([\w-]+) -->)(.*?)(<!-- /numbers -->)", re.DOTALL)


def loss() -> str:
    """Time and memory of the loss at n = 8192, against the others'."""
    case = ("in-batch", "8192", "128", "float32")
    times = {
        row["way"]: float(row["ratio"])
        for row in results("bench/loss.csv")
        if (row["case"], row["n"], row["d"], row["dtype"]) == case
    }
    memory = {row["way"]: float(row["extra_mb"]) for row in results("bench/loss_memory.csv") if row["n"] == "8192"}
    lines = [
        "| in-batch negatives, n = 8192, d = 128, float32, one CPU thread | time, × the matrix products alone "
        "| memory beyond the inputs |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {way} | {times[way]:.2f} | {memory[way]:.0f} MB |" for way in memory]
    return "\n\n" + "\n".join(lines) + "\n\n"


def distillation() -> str:
    """Table 1 at quick scale."""
    ours = {row["method"]: float(row["ours"]) for row in results("table1/quick/table1.csv")}
    others = ", ".join(f"{name} {ours[name]:.2f}" for name in ("CRD", "J_0.05", "KD", "L_0.1"))
    return f"plain student {ours['student']:.2f} %, {others}"


def pretraining() -> str:
    """Table 3 at quick scale, with and without the published division of the loss by α, and its control."""
    rows = {(row["objective"], row["divided_by_alpha"]): row for row in results("table3/quick/table3.csv")}
    control = {row["objective"]: row for row in results("table3/controls.csv") if row["rate"] == "0.3"}

    def number(mean: str, sd: str) -> str:
        return f"{float(mean):.1f} ± {float(sd):.1f}"

    plain, divided, undivided = (
        number(rows[key]["ours"], rows[key]["sd"])
        for key in (("L_1.0", "True"), ("J_10.0→J_0.1", "True"), ("J_10.0→J_0.1", "False"))
    )
    same = control["CPC, divided by the schedule"]
    return (
        f"CPC {plain} %, J_10→J_0.1 {undivided};\nwith the loss divided by α, as the published code does, {divided}, "
        f"but CPC divided alike {number(same['linear'], same['sd'])}"
    )


def verdicts() -> str:
    """How many claims came to what."""
    found = claims(ROOT / "results")
    return f"{len(found)} claims: {summary(found)}"


NUMBERS: dict[str, Callable[[], str]] = {
    "loss": loss,
    "distillation": distillation,
    "pretraining": pretraining,
    "claims": verdicts,
    **TABLES,
}


def written(text: str) -> str:
    """The page with the numbers that results/ holds."""

    def fresh(found: re.Match[str]) -> str:
        begin, name, _, end = found.groups()
        if name not in NUMBERS:
            raise KeyError(f"no numbers are called {name!r}: write one of {', '.join(NUMBERS)}")
        return begin + NUMBERS[name]() + end

    return MARK.sub(fresh, text)


def pages() -> list[Path]:
    """Those that may hold marks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    reproduce(TARGETS["claims"], "best", ROOT / "results", ROOT / "runs", False, lambda done: None)
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := written(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: new numbers")


if __name__ == "__main__":
    main()
