"""`mlcpc report`: one page of what the paper says beside what was measured here, and a page per run.

It reads result.json, metrics.jsonl, checks.json and CSV files, and nothing else. `gather` makes plain data of them;
`figures`, `staircase`, `tables`, `story`, `index` and `runpage` make blocks of that; `page` and `markdown` write the
blocks down.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlcpc.config import InputError
from mlcpc.report.content import Figure, Fold, Page
from mlcpc.report.gather import Evidence, Found, dicts, find, read_evidence, read_run
from mlcpc.report.index import Linked, front_page
from mlcpc.report.markdown import to_markdown
from mlcpc.report.page import to_html
from mlcpc.report.runpage import Told, run_page, tell, title
from mlcpc.report.staircase import climb
from mlcpc.report.tables import Pretrained, learnt
from mlcpc.reproduce.claims import BEST, Claim, claims
from mlcpc.reproduce.rules import RULES
from mlcpc.runs import write_text

__all__ = ["FORMS", "Written", "report"]

FORMS = {"html": to_html, "md": to_markdown}
_LARGEST = 20_000_000
"""bytes; a larger file is not copied beside the page"""


@dataclass(frozen=True)
class Written:
    """What `report` wrote, of how much, and the places where it found nothing."""

    path: Path
    results: int
    runs: int
    notes: tuple[str, ...]


def report(sources: Iterable[Path] = (), out: Path = Path("report"), form: str = "html") -> Written:
    """Write out/index.html and out/runs/<id>.html (or .md) from folders of results and of runs.

    sources  such folders, or folders that hold them; none: results/ and runs/ here
    """
    if form not in FORMS:
        raise InputError(f"format is {form!r}, which is not known: write {' or '.join(FORMS)}")
    found = find(sources)
    told: list[Told] = []
    climbs: list[tuple[object, Figure]] = []
    pretrained: list[Pretrained] = []
    titles: dict[str, str] = {}
    for folder, name in zip(found.runs, _names(found.runs), strict=True):
        run = read_run(folder)
        titles[run.id] = title(run, titles)
        _write(run_page(run, titles[run.id]), out / "runs" / name, form)
        told.append(tell(run, f"runs/{name}.html", titles[run.id]))
        figure = climb(run.result) if run.section == "staircase" else None
        climbs += [(run.config, figure)] if figure else []
        if run.section == "pretrain" and run.status == "done":
            pretrained.append(Pretrained(run.config, dicts(run.result.get("curve"))))
    linked = []
    for evidence, links in _copied([read_evidence(folder) for folder in found.evidence], out):
        linked.append(Linked(evidence, links, _more(evidence, climbs, pretrained)))
    _write(front_page(linked, _claims(found), told, found.notes), out / "index", form)
    return Written(out / f"index.{form}", len(linked), len(told), found.notes)


def _more(evidence: Evidence, climbs: list[tuple[object, Figure]], pretrained: list[Pretrained]) -> Fold | None:
    """What the runs behind it show, where they are among those that were found."""
    if evidence.target == "figure3":
        same = [figure for config, figure in climbs if config == evidence.facts.get("config")]
        return Fold("The climb, update by update", (same[0],)) if same else None
    if evidence.target in ("table3", "table4"):
        figure = learnt(evidence, pretrained)
        return Fold("How they learnt, epoch by epoch", (figure,)) if figure else None
    return None


def _claims(found: Found) -> list[Claim]:
    """Of the first folder of results; where only some of it is on the page, those that are about that."""
    if not found.evidence:
        return []
    root = found.evidence[0].resolve().parent.parent
    shown = {folder.resolve() for folder in found.evidence}
    if {folder.resolve() for folder in find([root]).evidence} <= shown:
        return claims(root)
    targets = {folder.parent.name for folder in shown}
    about = {rule.name: set(rule.sources) for rule in RULES}
    scales = tuple(scale for scale in BEST if scale in {folder.name for folder in shown})
    return [claim for claim in claims(root, scales) if about[claim.name] <= targets]


def _write(content: Page, path: Path, form: str) -> None:
    _replace(path.with_name(f"{path.name}.{form}"), FORMS[form](content))


def _replace(path: Path, text: str) -> None:
    """Unless it says so already: waiting for the disk is most of the time of a second report."""
    if not path.exists() or path.read_bytes() != text.encode():
        write_text(path, text)


def _harmless(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")[:150] or "_"


def _names(folders: Iterable[Path]) -> list[str]:
    """File names: the folders' own, where they are harmless, and each only once."""
    taken: dict[str, int] = {}
    names = []
    for folder in folders:
        name = _harmless(folder.resolve().name)
        count = taken[name.lower()] = taken.get(name.lower(), 0) + 1
        names.append(name if count == 1 else f"{name}.{count}")
    return names


def _copied(evidence: Iterable[Evidence], out: Path) -> Iterable[tuple[Evidence, tuple[tuple[str, str], ...]]]:
    """With copies of its files beside the page, so that the page can be sent: their names and addresses."""
    taken: dict[Path, int] = {}
    for one in evidence:
        place = Path("data") / _harmless(one.target) / _harmless(one.scale)
        count = taken[place] = taken.get(place, 0) + 1
        place = place if count == 1 else place.with_name(f"{place.name}.{count}")
        links = []
        for path in [*sorted(one.folder.glob("*.csv")), one.folder / "checks.json"]:
            if path.is_file() and path.stat().st_size < _LARGEST:
                copy = place / _harmless(path.name)
                _replace(out / copy, path.read_text(encoding="utf-8", errors="replace"))
                links.append(("config and checks" if path.suffix == ".json" else path.name, copy.as_posix()))
        yield one, tuple(links)
