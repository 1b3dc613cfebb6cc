"""The front page: the story, the claims, every figure and table, every run."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlcpc
from mlcpc.report import figures, staircase, story, tables
from mlcpc.report.content import (
    Block,
    Cell,
    Fold,
    Group,
    Listed,
    Numbers,
    Page,
    Para,
    Section,
    Table,
    Tiles,
    Verdicts,
    Words,
)
from mlcpc.report.gather import Evidence, Unusable, as_dict
from mlcpc.report.runpage import Told
from mlcpc.report.scales import number, wall_time
from mlcpc.reproduce import TARGETS
from mlcpc.reproduce.claims import Claim
from mlcpc.reproduce.rules import RULES

__all__ = ["Linked", "front_page"]

DRAWINGS: dict[str, Callable[[Evidence], list[Block]]] = {
    "figure1": figures.figure1,
    "figure2": figures.figure2,
    "figure3": staircase.figure3,
    "figure4": figures.figure4,
    "table1": tables.distillation,
    "table2": tables.distillation,
    "table3": tables.representations,
    "table4": tables.representations,
    "timing": figures.times,
}
THEMES = {
    "Estimating": ("figure1", "figure2", "figure3", "timing"),
    "Distillation": ("table1", "table2", "figure4"),
    "Pretraining": ("table3", "table4"),
}
KINDS = {"train": "Classifiers", "distill": "Distillation", "pretrain": "Pretraining", "probe": "Probes"}
STATES = {"done": "done", "unfinished": "open", "idle": "open", "broken": "broken"}


@dataclass(frozen=True)
class Linked:
    """Evidence, where its files are from the page, (name, address), and what its runs add, if they are here."""

    evidence: Evidence
    links: tuple[tuple[str, str], ...] = ()
    more: Fold | None = None


def front_page(evidence: Sequence[Linked], claims: Sequence[Claim], runs: Sequence[Told], notes: Sequence[str]) -> Page:
    """Put together from what was found; what was not is said."""
    seen = list(dict.fromkeys(one.evidence.target for one in evidence if one.evidence.target != "claims"))
    sections = [_story(evidence), *([_claims(claims, seen)] if claims else [])]
    if notes:
        sections.insert(0, Section("notes", "What was not found", (Listed(tuple(notes), "warn"),), unseen=True))
    sections += [_target(name, [one for one in evidence if one.evidence.target == name]) for name in seen]
    sections += [*_absent(seen), _runs(runs)]
    foot = Words(
        f"Made by `mlcpc report`, version {mlcpc.__version__}, from result.json, metrics.jsonl, checks.json and CSV "
        "files. Nothing was trained for this page, and it loads nothing from a network."
    )
    return Page(story.TITLE, "Multi-label contrastive predictive coding", story.LEDE, tuple(sections), foot)


def _story(evidence: Sequence[Linked]) -> Section:
    told: tuple[Block, ...] = tuple(
        block for title, words in story.PASSAGES for block in (Para(title, "heading"), Para(words))
    )
    for linked in _best_first([one for one in evidence if one.evidence.target == "figure3"]):
        try:
            columns = (told, (staircase.headline(linked.evidence),))
        except Unusable:
            continue
        return Section("story", "The story", (Group(columns, "story"),), short="Story", unseen=True)
    passages = tuple(told[i : i + 2] for i in range(0, len(told), 2))
    return Section("story", "The story", (Group(passages),), short="Story", unseen=True)


def _claims(claims: Sequence[Claim], seen: Sequence[str]) -> Section:
    sources = {rule.name: rule.sources for rule in RULES}
    blocks: list[Block] = []
    counts: Counter[str] = Counter()
    for theme, targets in THEMES.items():
        items = []
        for claim in claims:
            mine = sources.get(claim.name, ())
            if not set(mine) & set(targets):
                continue
            there = next((f"#{target}" for target in mine if target in seen), "")
            small = claim.verdict == "not reproduced" and claim.scale not in ("", "paper")
            verdict = claim.verdict + (f" at {claim.scale} scale" if small else "")
            said = claim.text.removeprefix(f"{theme}: ")
            items.append((_mark(claim.verdict), said[:1].upper() + said[1:], verdict, claim.measured, there))
            counts[verdict] += 1
        told, waiting = ([item for item in items if (item[0] == "none") == wait] for wait in (False, True))
        blocks += [Para(theme, "heading")] if items else []
        blocks += [Verdicts(tuple(told))] if told else []
        blocks += [Fold(f"{len(waiting)} not run", (Verdicts(tuple(waiting)),))] if waiting else []
    order = sorted(counts, key=lambda verdict: ("not" in verdict, verdict == "not run", len(verdict)))
    return Section(
        "claims", "Does it hold?", (Tiles(tuple((str(counts[v]), v) for v in order)), *blocks), short="Claims"
    )


def _mark(verdict: str) -> str:
    return {"reproduced": "yes", "not reproduced": "no", "not run": "none"}.get(verdict, "partly")


def _best_first(some: Sequence[Linked]) -> list[Linked]:
    """The largest scale first: a target lists its own from small to large."""

    def rank(linked: Linked) -> int:
        scales = list(TARGETS[linked.evidence.target].scales) if linked.evidence.target in TARGETS else []
        return scales.index(linked.evidence.scale) if linked.evidence.scale in scales else -1

    return sorted(some, key=rank, reverse=True)


def _target(target: str, some: Sequence[Linked]) -> Section:
    """The largest scale that can be drawn, and the others behind it, to be unfolded."""
    first: list[Block] = []
    rest: list[Block] = []
    for linked in _best_first(some):
        blocks, drawn = _scale(linked)
        if drawn and not first:
            first = blocks
            continue
        missed = sum(not holds for _, holds, _ in linked.evidence.checks)
        words = "" if drawn else ", nothing to draw"
        words += f", {missed} of {len(linked.evidence.checks)} checks fail" if missed else ""
        rest.append(Fold(f"{linked.evidence.scale} scale{words}", tuple(blocks), open=not first))
    lead = (story.LEADS[target],) if target in story.LEADS else ()
    return Section(target, story.TITLES.get(target, target), (*first, *rest), _short(target), _short(target), lead)


def _short(target: str) -> str:
    name = target.rstrip("0123456789")
    return f"{name} {target[len(name) :]}".strip().capitalize()


def _scale(linked: Linked) -> tuple[list[Block], bool]:
    """What there is to say of one scale, and whether its numbers could be drawn."""
    evidence = linked.evidence
    blocks: list[Block] = [_facts(linked)]
    drawn = True
    try:
        blocks += DRAWINGS[evidence.target](evidence) if evidence.target in DRAWINGS else []
    except Unusable as reason:
        blocks.append(Para(f"{reason}.", "warn"))
        drawn = False
    if linked.more:
        blocks.append(linked.more)
    if evidence.checks:
        items = tuple(
            ("yes" if holds else "no", claim, "holds" if holds else "does not hold", measured, "")
            for claim, holds, measured in evidence.checks
        )
        held = sum(holds for _, holds, _ in evidence.checks)
        words = f"{'All' if held == len(items) else f'{held} of'} {len(items)} checks hold"
        blocks.append(Fold(words, (Verdicts(items, "checks"),), open=held < len(items)))
    if evidence.notes:
        blocks.append(Listed(evidence.notes, "warn"))
    return blocks, drawn


def _facts(linked: Linked) -> Numbers:
    evidence = linked.evidence
    facts, target = evidence.facts, TARGETS.get(evidence.target)
    environment, on = as_dict(facts.get("environment")), facts.get("computed_on")
    machine = f"{environment.get('device')}, torch {environment.get('torch')}" if "device" in environment else ""
    if isinstance(on, list) and on:
        machine = ", ".join(map(str, on))
    seconds = number(facts.get("seconds"))
    time = wall_time(seconds) if math.isfinite(seconds) else ""
    size = facts["n"] if isinstance(facts.get("n"), str) else ""
    command = (
        facts["command"] if isinstance(facts.get("command"), str) else target.command(evidence.scale) if target else ""
    )
    return Numbers(f"{evidence.scale} scale", tuple(filter(None, (size, machine, time))), linked.links, command)


def _absent(seen: Sequence[str]) -> list[Section]:
    """What the paper has and was not found, with the smallest scale that tells something."""
    rows = []
    for name, target in TARGETS.items():
        if name in seen or name not in DRAWINGS:
            continue
        scale = next(scale for scale in target.scales if scale != "smoke")
        what = Cell(_short(name), below=target.title)
        rows.append((what, Cell(target.command(scale), tone="code"), target.scales[scale].cost))
    table = Table(("What", "Command", "Cost"), tuple(rows), text_columns=(0, 1, 2))
    return [Section("absent", "Not run here", (table,), short="Not run")] if rows else []


def _runs(runs: Sequence[Told]) -> Section:
    blocks: list[Block] = []
    idle = [run for run in runs if run.status == "idle"]
    rest = [run for run in runs if run.status != "idle"]
    for kind in dict.fromkeys(run.section for run in rest):
        mine = [run for run in rest if run.section == kind]
        words = f"{KINDS.get(kind, kind)}: {len(mine)} run{'' if len(mine) == 1 else 's'}"
        blocks.append(Fold(words, (_run_table(mine),), open=len(rest) <= 40))
    if idle:
        words = "1 run wrote nothing but its" if len(idle) == 1 else f"{len(idle)} runs wrote nothing but their"
        blocks.append(Fold(f"{words} settings", (_run_table(idle),)))
    finished = sum(run.status == "done" for run in runs)
    lead = Words("No run was found. `mlcpc train`, `distill`, `pretrain` and `probe` keep theirs in `runs/`.")
    if runs:
        lead = Words(f"{finished} of {len(runs)} are finished. Each name leads to curves, settings and machine.")
    return Section("runs", "Every run" if runs else "Runs", tuple(blocks), short="Runs", lead=(lead,))


def _run_table(runs: Sequence[Told]) -> Table:
    rows: list[tuple[Any, ...]] = [
        (
            Cell(run.title, run.href, below=run.id if run.id != run.title else ""),
            Cell(run.score, spark=run.spark),
            run.time,
            Cell(run.state, tone=STATES[run.status]),
            run.machine,
        )
        for run in runs
    ]
    columns = ("Run", "Result", "Time", "State", "Machine")
    return Table(columns, tuple(rows), text_columns=(0, 3, 4), filter=len(runs) > 12)
