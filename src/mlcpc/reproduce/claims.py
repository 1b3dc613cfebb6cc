"""The paper's claims, each with a verdict, judged from what lies in the results folder; nothing is trained for it.

mlcpc reproduce claims         a second; reads results/<target>/<scale>/*.csv and checks.json of the other targets
"""

import csv
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mlcpc.reproduce.judges import Evidence, Finding
from mlcpc.reproduce.rules import RULES, Rule
from mlcpc.reproduce.target import Check, Drawing, Result, Scale, Target, Tick
from mlcpc.runs import write_text

__all__ = ["BEST", "Claim", "claims", "summary"]

BEST = ("paper", "quick", "two-layer", "demo")
"""the scales that are worth believing, the best first; smoke only shows that the code runs"""
NO, NOT_RUN = "not reproduced", "not run"


class Claim(NamedTuple):
    """What the paper says, and what became of it here."""

    name: str
    text: str
    verdict: str
    """reproduced; reproduced at quick scale, or another's name; not reproduced; not run"""
    scale: str
    """of the numbers it was judged by; empty: none"""
    measured: str
    source: str
    """files below the results folder; where it was not run, what would tell"""

    @property
    def words(self) -> str:
        """The verdict, and of which scale it is told where that is not the paper's."""
        return f"{self.verdict} ({self.scale} scale)" if self.verdict == NO and self.scale != "paper" else self.verdict


@dataclass(frozen=True)
class Judgement:
    """Which scales' results may tell, the best first."""

    scales: tuple[str, ...] = BEST


def claims(out: Path, scales: tuple[str, ...] = BEST) -> list[Claim]:
    """Every claim, each judged by the first of these scales whose results can tell."""
    return [_judge(rule, out, scales) for rule in RULES]


def summary(found: list[Claim]) -> str:
    """
    >>> summary([Claim("", "", "not run", "", "", ""), Claim("", "", "reproduced", "paper", "", "")])
    '1 reproduced, 1 not run'
    """
    counts = Counter(claim.verdict for claim in found)
    order = ["reproduced", *sorted(v for v in counts if v.startswith("reproduced at")), NO, NOT_RUN]
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict])


def _judge(rule: Rule, out: Path, scales: tuple[str, ...]) -> Claim:
    why = ""
    for scale in scales:
        there = [target for target in rule.sources if _csv(out, target, scale).exists()]
        if not there:
            continue
        finding = _finding(rule, out, scale, there)
        if scale == "paper" and len(there) < len(rule.sources):
            finding = Finding(None, f"only {' and '.join(there)}: {finding.measured}")
        if finding.holds is None:
            why = why or f"{scale} scale: {finding.measured}"
            continue
        reproduced = "reproduced" if scale == "paper" else f"reproduced at {scale} scale"
        source = ", ".join(str(_csv(out, target, scale).relative_to(out)) for target in there)
        return Claim(rule.name, rule.text, reproduced if finding.holds else NO, scale, finding.measured, source)
    needed = " and ".join(f"mlcpc reproduce {target}" for target in rule.sources)
    return Claim(rule.name, rule.text, NOT_RUN, "", why, needed)


def _finding(rule: Rule, out: Path, scale: str, targets: list[str]) -> Finding:
    rows: dict[str, list[dict[str, str]]] = {}
    configs: dict[str, dict[str, Any]] = {}
    path = out
    try:
        for target in targets:
            path = _csv(out, target, scale)
            rows[target] = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
            configs[target] = json.loads((path.parent / "checks.json").read_text(encoding="utf-8"))["config"]
            if not rows[target]:
                raise LookupError(f"{path} has no rows")
        return rule.judge(Evidence(rows, configs))
    except (OSError, LookupError, ValueError, TypeError, ArithmeticError, csv.Error):
        return Finding(None, f"{path.relative_to(out)} is half written, or of another version: draw it again")


def _csv(out: Path, target: str, scale: str) -> Path:
    return out / target / scale / f"{target}.csv"


def compute(config: Judgement, tick: Tick, out: Path) -> Result:
    """The verdicts on what lies in `out`."""
    found = claims(out, config.scales)
    tick(1.0)
    return {"claims": [claim._asdict() for claim in found]}


def draw(result: Result, drawing: Drawing) -> list[Check]:
    """A CSV, and a page to read. A verdict is a finding about the paper and this code, not a check that can fail."""
    found = [Claim(**claim) for claim in result["claims"]]
    drawing.write_csv([{("judged_by" if k == "scale" else k): v for k, v in c._asdict().items()} for c in found])
    lines = [
        "# The paper's claims, judged from these results",
        "",
        f"{summary(found)}.",
        "",
        f"`{TARGET.command(drawing.scale)}` writes this page anew, by the rules of `mlcpc.reproduce.judges`.",
        "Each claim is judged by the best scale whose results can tell; what is not reproduced at a small one may well",
        "hold at the paper's.",
        "",
        "| claim | verdict | measured | by |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {c.text} | {c.words} | {c.measured or '–'} | {c.source} |" for c in found]
    write_text(drawing.folder / f"{drawing.name}.md", "\n".join(lines) + "\n")
    return []


TARGET = Target(
    name="claims",
    title="The paper's claims, each with a verdict from the results that are there",
    section="claims",
    scales={
        "smoke": Scale(Judgement(("smoke",)), "a second; by the others' smoke scales"),
        "best": Scale(Judgement(), "a second; by the best scale of each"),
    },
    compute=compute,
    draw=draw,
    sample=lambda config: "each claim says its own",
    reads=True,
)
