"""`mlcpc report` on results and runs of every kind, whole and broken, without a browser."""

import csv
import html
import json
import math
import re
import shutil
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import mlcpc
from mlcpc.cli import main
from mlcpc.config import InputError, to_dict
from mlcpc.report import report
from mlcpc.report.scales import axis
from mlcpc.reproduce import TARGETS, distillation, representation
from mlcpc.reproduce.claims import claims
from mlcpc.reproduce.target import Drawing

RESULTS = Path(__file__).parent.parent / "results"
VOID = {"meta", "input", "br", "link", "img", "hr"}
BREAKOUT = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def make_run(root: Path, name: str = "net-s0-0123456789", section: str = "train", epochs: int = 4, **more) -> Path:
    """A finished run, as `mlcpc train` leaves it."""
    folder = root / section / name
    folder.mkdir(parents=True)
    config: Any = {"network": "resnet20", "data": "cifar10", "epochs": epochs, "seed": 0}
    given = more.pop("config", {})
    config = {**config, **given} if isinstance(given, dict) else given
    rows = []
    for epoch in range(epochs):
        for step in (10, 20):
            row = {"epoch": epoch, "step": 20 * epoch + step, "rate": 0.1, "loss": 2 / (epoch + 1), "train_top1": 0.1}
            rows.append({"kind": "step", **row, "estimate": epoch / 2, "ceiling": 4.85, "alpha": 1.0, "seconds": 1.0})
        rows.append({**rows[-1], "kind": "epoch", "top1": 0.2 + epoch / 10, "top5": 0.9})
    environment = {"mlcpc": mlcpc.__version__, "python": "3.12", "torch": "2.13", "device": "a machine"}
    curve = [{key: value for key, value in row.items() if key != "kind"} for row in rows if row["kind"] == "epoch"]
    result = {"config": config, "seconds": 75.0, "top1": 0.5123, "best_top1": 0.52, "curve": curve}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "result.json").write_text(json.dumps({**result, "environment": environment, **more}))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A report over the committed results and a run."""
    root = tmp_path_factory.mktemp("whole")
    make_run(root / "runs")
    report([RESULTS, root / "runs"], root / "out")
    return root / "out"


def test_every_target_that_has_results_is_drawn_and_every_other_one_is_said_to_be_missing(whole) -> None:
    page = read(whole / "index.html")
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for target in TARGETS:
        there = any((RESULTS / target).glob("*/checks.json"))
        if target != "claims":
            assert (target in ids) == there
            assert there or f"mlcpc reproduce {target}" in page.text
    for link in (attributes["href"] for tag, attributes in page.tags if tag == "a"):
        assert link.startswith("#") or (whole / unquote(link.partition("#")[0])).is_file()
        assert not link.startswith("#") or link[1:] in ids


def test_the_page_has_the_numbers_of_the_csv_beside_the_published_ones(whole) -> None:
    page = read(whole / "index.html")
    rows = list(csv.DictReader((RESULTS / "figure3/paper/figure3.csv").read_text().splitlines()))
    for row in rows[::7]:
        ours = f"{float(row['plateau_mean']):.2f} ± {float(row['plateau_std']):.2f}"
        theirs = f" ({float(row['published_mean']):.2f})" if row["published_mean"] else ""
        assert ours + theirs in page.text
    for row in csv.DictReader((RESULTS / "table1/quick/table1.csv").read_text().splitlines()):
        difference = float(row["ours"]) - float(row["published_cifar100"])
        for number in (row["published_cifar100"], row["ours"], f"{difference:+.2f}"):
            assert number in page.text.replace("−", "-")
    for claim in claims(RESULTS):
        assert re.sub(r"^\w+: ", "", claim.text).split("_")[0][1:] in page.text
        assert claim.verdict in page.text


def test_a_curve_is_drawn_where_its_numbers_are(whole) -> None:
    """The stops that a pointer reads lie on the drawn curve, at the axis' own law."""
    tags = read(whole / "index.html").tags
    plots = [json.loads(attributes["data-stops"] or "") for _, attributes in tags if attributes.get("data-stops")]
    assert len(plots) > 8
    for plot in plots:
        left, right, top, bottom = plot["box"]
        for at, _, values in plot["stops"]:
            assert (top if plot["rows"] else left) - 1 <= at <= (bottom if plot["rows"] else right) + 1
            assert len(values) == len(plot["series"])
    (panel,) = [plot for plot in plots if plot["series"][:1] == [["L_1.0", "cpc-1"]] and len(plot["stops"]) == 5][-1:]
    heights = [(float(values[0][0].split()[0]), values[0][1]) for _, _, values in panel["stops"]]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(heights)]
    assert all(math.isclose(slope, slopes[0], rel_tol=0.05) for slope in slopes)


@pytest.mark.parametrize("where", ["index.html", "runs/net-s0-0123456789.html"])
def test_nothing_is_asked_of_a_network_and_nothing_is_styled_or_run_but_by_the_page_itself(whole, where) -> None:
    text = (whole / where).read_text()
    page = Page(text)
    for tag, attributes in page.tags:
        assert not {"src", "style", "srcset"} & attributes.keys(), tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert tag not in ("link", "iframe", "img", "object", "base", "form")
        assert not (attributes.get("href") or "").startswith(("http", "//", "javascript", "data:"))
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in (policy or "")
    assert "unsafe" not in (policy or "")


def test_the_run_page_says_what_the_run_was(whole) -> None:
    page = read(whole / "runs" / "net-s0-0123456789.html")
    for words in (
        "resnet20, cifar10, seed 0",
        "51.23 %",
        "1 min 15 s",
        "a machine",
        "Estimate and its ceiling",
        "Loss",
    ):
        assert words in page.text
    index = read(whole / "index.html")
    assert "1 of 1 are finished" in index.text


def test_markdown_says_the_same(whole, tmp_path) -> None:
    make_run(tmp_path / "runs")
    written = report([RESULTS, tmp_path / "runs"], tmp_path / "out", "md")
    text = written.path.read_text()
    page = read(whole / "index.html").text
    numbers = set(re.findall(r"\d+\.\d\d ± \d\.\d\d \(\d+\.\d\d\)", page))
    assert len(numbers) > 50
    for number in numbers:
        assert number in text
    assert (tmp_path / "out/runs/net-s0-0123456789.md").read_text().count("| epoch |") == 3
    assert "[resnet20, cifar10, seed 0](runs/net-s0-0123456789.md)" in text
    assert re.search(r"^\| J\\_0.05 \| 71.33 \| 82.44 \| ± 0.18 \| \+11.11 \|", text, re.MULTILINE)


def test_tables_that_are_not_committed_yet_are_drawn_from_their_own_rows(tmp_path) -> None:
    """Tables 2 and 4 and Figure 4 at the paper's scale, of invented accuracies."""
    for name in ("table2", "figure4"):
        grid = TARGETS[name].scales["paper"].config
        cells = [
            {"teacher": t, "student": s, "method": m, "seed": i, "top1": 0.7 + i / 100, "best_top1": 0.71}
            for t, s, m, i in grid.cells()
        ]
        rows = distillation.table({"config": to_dict(grid), "cells": cells, "teachers": {}})
        Drawing(tmp_path / "results" / name / "paper", name, "paper").write_csv(rows)
    study = TARGETS["table4"].scales["paper"].config
    keys = ("data", "epochs", "objective", "alpha", "divided", "seed")
    numbers = {"top1": 0.44, "top5": 0.6, "best_top1": 0.44, "knn_top1": 0.4}
    cells = [dict(zip(keys, cell, strict=True)) | numbers for cell in study.cells()]
    rows = representation.table({"config": to_dict(study), "cells": cells, "random": {}})
    Drawing(tmp_path / "results/table4/paper", "table4", "paper").write_csv(rows)
    report([tmp_path / "results"], tmp_path / "out")
    page = read(tmp_path / "out/index.html")
    plots = [json.loads(attributes["data-stops"] or "") for _, attributes in page.tags if attributes.get("data-stops")]
    assert len(plots) == 2 + 6 + 1  # two kinds of pairs, six pairs of different types, one data set
    assert [stop[1] for stop in plots[0]["stops"]] == [
        f"α = {alpha}" for alpha in ("0.01", "0.05", "0.1", "0.2", "0.5", "1")
    ]
    assert "ResNet50 → vgg8" in page.text
    assert "ImageNet, 30 epochs" in page.text
    assert "43.45 44.00 – +0.55" in page.text


def test_without_arguments_results_and_runs_here(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 0
    assert "There is no results/ here." in capsys.readouterr().out
    assert "There is no runs/ here." in read(tmp_path / "report/index.html").text
    (tmp_path / "results").mkdir()
    assert main(["report", "-o", "there"]) == 0
    assert "results/ holds no results and no runs." in read(tmp_path / "there/index.html").text
    shutil.copytree(RESULTS / "figure3", "results/figure3")
    make_run(tmp_path / "runs")
    assert main(["report", "--format", "md"]) == 0
    assert "results, 1 runs" in capsys.readouterr().out.replace("4 results", "results")


@pytest.mark.parametrize("deep", ["", "figure3", "figure3/demo"])
def test_any_folder_of_results_will_do(tmp_path, deep) -> None:
    written = report([RESULTS / deep], tmp_path)
    assert written.results == sum(1 for _ in (RESULTS / deep).rglob("checks.json"))
    page = read(tmp_path / "index.html")
    assert "Climbing from 2 to 10 nats" in page.text
    if deep == "figure3/demo":
        assert "reproduced at demo scale" in page.text
        assert "smaller safe α has less bias" not in page.text
        assert "Distillation, networks of one type" not in page.text


def test_a_single_run_and_a_section_will_do(tmp_path) -> None:
    folder = make_run(tmp_path / "runs")
    for source in (folder, folder.parent, tmp_path):
        assert report([source], tmp_path / "out").runs == 1


def test_a_place_that_does_not_exist_is_one_line(tmp_path, capsys) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "nowhere does not exist: give a folder of results or of runs" in line
    with pytest.raises(InputError, match="format is 'pdf', which is not known: write html or md"):
        report([], tmp_path, "pdf")


BREAKS = {
    "no result": (lambda f: (f / "result.json").unlink(), "not finished (epoch 4 of 4)"),
    "only settings": (
        lambda f: [(f / n).unlink() for n in ("result.json", "metrics.jsonl")],
        "wrote nothing but its settings",
    ),
    "an empty result": (lambda f: (f / "result.json").write_text(""), "result.json is empty."),
    "half a result": (lambda f: (f / "result.json").write_text('{"config": {'), "result.json is no JSON"),
    "a list": (lambda f: (f / "result.json").write_text("[1]"), "holds a list, not an object"),
    "no config": (lambda f: (f / "config.json").unlink(), "51.23 %"),
    "no metrics": (lambda f: (f / "metrics.jsonl").unlink(), "Estimate and its ceiling"),
    "a cut line": (
        lambda f: (f / "metrics.jsonl").write_text((f / "metrics.jsonl").read_text()[:-20]),
        "The last line of metrics.jsonl is cut off; 11 lines before it read.",
    ),
    "noise": (
        lambda f: (f / "metrics.jsonl").write_bytes(b"\xff\xfe\n[]\n7\n" + (f / "metrics.jsonl").read_bytes()),
        "3 lines of metrics.jsonl cannot be read and left out.",
    ),
    "another version": (
        lambda f: (f / "result.json").write_text(
            json.dumps({"config": {}, "seconds": 1, "environment": {"mlcpc": "0.0.3"}})
        ),
        "Made by mlcpc 0.0.3; this report is by",
    ),
    "another program": (
        lambda f: (f / "result.json").write_text('{"accuracy": 1}'),
        "result.json has no config, seconds, environment: it is of another version",
    ),
    "a folder": (lambda f: [(f / "result.json").unlink(), (f / "result.json").mkdir()], "result.json cannot be read"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_run_says_what_it_is(tmp_path, kind) -> None:
    folder = make_run(tmp_path / "runs")
    spoil, words = BREAKS[kind]
    spoil(folder)
    written = report([tmp_path / "runs"], tmp_path / "out")
    assert written.runs == 1
    assert words in read(tmp_path / "out/runs/net-s0-0123456789.html").text
    read(tmp_path / "out/index.html")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "checks.json").unlink(), "checks.json is missing."),
        (lambda f: (f / "checks.json").write_text("{"), "checks.json is no JSON"),
        (lambda f: (f / "figure3.csv").unlink(), "figure3.csv is missing, so there is nothing to draw"),
        (lambda f: (f / "figure3.csv").write_text(""), "figure3.csv is empty."),
        (lambda f: (f / "figure3.csv").write_text("scale,critic\n"), "has no column objective, lower_bound"),
        (
            lambda f: (f / "figure3.csv").write_text((f / "figure3.csv").read_text().replace(",ceiling,", ",top,")),
            "figure3.csv has no column ceiling: it was written by another version",
        ),
        (
            lambda f: (f / "figure3.csv").write_text((f / "figure3.csv").read_text()[:-30]),
            "figure3.csv: 1 row with another number of cells left out.",
        ),
    ],
)
def test_a_broken_result_says_what_it_is(tmp_path, spoil, words) -> None:
    shutil.copytree(RESULTS / "figure3/demo", tmp_path / "results/figure3/demo")
    spoil(tmp_path / "results/figure3/demo")
    report([tmp_path / "results"], tmp_path / "out")
    assert words in read(tmp_path / "out/index.html").text


def test_no_result_however_spoilt_stops_the_report(tmp_path) -> None:
    """Every column and every value of every committed file in turn: gone, or nonsense."""
    for source in sorted({path.parent for path in RESULTS.glob("*/*/checks.json")}):
        name = source.relative_to(RESULTS)
        if name.parts[1] in ("quick", "two-layer") and name.parts[0] == "figure3":
            continue
        folder = tmp_path / name
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.png", "*.svg"))
        for path in folder.glob("*.csv"):
            whole = path.read_text()
            header, *lines = whole.splitlines()
            names = header.split(",")
            for i in range(len(names)):
                nonsense = ("", "x", "nan", "-1e400")[i % 4]
                cells = [line.split(",") for line in lines[:12]]
                spoilt = [",".join([*row[:i], nonsense, *row[i + 1 :]]) for row in cells]
                path.write_text("\n".join([header, *spoilt]))
                report([folder], tmp_path / "out")
            path.write_text(whole)
        facts = json.loads((folder / "checks.json").read_text())
        for i, key in enumerate(facts):
            nonsense = (None, 7, "x", [1], {"a": [None]})[i % 5]
            (folder / "checks.json").write_text(json.dumps({**facts, key: nonsense}))
            report([folder], tmp_path / "out")
        read(tmp_path / "out/index.html")


def test_no_run_however_spoilt_stops_the_report(tmp_path) -> None:
    for i, nonsense in enumerate((None, -1, 1e308, "x", [1], {"a": [None]}, True, [[]], math.nan)):
        for key in ("epoch", "step", "loss", "estimate", "ceiling", "alpha", "top1", "kind"):
            folder = make_run(tmp_path / str(i), f"{key}-0")
            rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            lines = [json.dumps({**row, key: nonsense} if j % 2 else row) for j, row in enumerate(rows)]
            (folder / "metrics.jsonl").write_text("\n".join(lines))
            for section in ("staircase", "pretrain", "probe", "distill"):
                make_run(tmp_path / str(i), f"{key}-{section}", section, config={"settings": nonsense, "run": nonsense})
            result = {
                "config": nonsense,
                "methods": nonsense,
                "curve": nonsense,
                "environment": nonsense,
                key: nonsense,
            }
            make_run(tmp_path / str(i), f"{key}-1", "staircase", **result)
        assert report([tmp_path / str(i)], tmp_path / "out").runs == 48
        read(tmp_path / "out/index.html")


def test_strings_from_files_are_shown_letter_by_letter(tmp_path) -> None:
    shutil.copytree(RESULTS / "table1/quick", tmp_path / "results/table1/quick")
    for path in (tmp_path / "results/table1/quick").glob("*.csv"):
        text = path.read_text().replace("resnet56 → resnet20", '"' + BREAKOUT.replace('"', '""') + '"')
        path.write_text(text.replace(",KD,", f",{BREAKOUT.split(chr(34))[0]},"))
    checks = tmp_path / "results/table1/quick/checks.json"
    facts = json.loads(checks.read_text())
    facts["checks"] = [{"claim": BREAKOUT, "holds": False, "measured": "[x](javascript:alert(1)) `a` **b**"}]
    checks.write_text(json.dumps({**facts, "n": BREAKOUT, "command": BREAKOUT, "computed_on": [BREAKOUT]}))
    folder = make_run(tmp_path / "runs", "<script>alert(2)", config={"network": BREAKOUT, BREAKOUT: BREAKOUT})
    rows = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**rows, "environment": {"mlcpc": BREAKOUT, "device": BREAKOUT}}))
    report([tmp_path / "results", tmp_path / "runs"], tmp_path / "out")
    (run_page,) = (tmp_path / "out/runs").iterdir()
    assert run_page.name == "_script_alert_2_.html"
    for path in (tmp_path / "out/index.html", run_page):
        text = path.read_text()
        page = Page(text)
        assert sum(tag == "script" for tag, _ in page.tags) == 1
        assert not any(tag == "img" or "onerror" in attributes for tag, attributes in page.tags)
        assert html.escape(BREAKOUT) in text
    assert "[x](javascript:alert(1)) `a` **b**" in page_text(tmp_path / "out/index.html")
    report([tmp_path / "results", tmp_path / "runs"], tmp_path / "out", "md")
    for path in (tmp_path / "out").rglob("*.md"):
        outside_code = re.sub(r"`[^`\n]*`", "", path.read_text().replace("\\`", ""))
        assert "<script" not in outside_code.replace("\\<script", "")
        assert "[x](javascript" not in outside_code


def page_text(path: Path) -> str:
    return read(path).text


def test_runs_of_one_name_do_not_overwrite_each_other(tmp_path) -> None:
    for section in ("train", "distill"):
        make_run(tmp_path / "runs", "same", section)
    report([tmp_path / "runs"], tmp_path / "out")
    assert {path.name for path in (tmp_path / "out/runs").iterdir()} == {"same.html", "same.2.html"}
    report([RESULTS / "figure1", RESULTS / "figure1/paper", RESULTS], tmp_path / "out")
    assert len(list((tmp_path / "out/data/figure1").iterdir())) == 1


def test_five_hundred_runs_in_ten_seconds(tmp_path) -> None:
    folder = make_run(tmp_path / "runs", "run-000", "distill", epochs=15, config={"objective": "ml_cpc"})
    steps = (folder / "metrics.jsonl").read_text().splitlines() * 6  # as many lines as a run of 15 epochs has
    (folder / "metrics.jsonl").write_text("\n".join(steps) + "\n")
    for i in range(1, 500):
        shutil.copytree(folder, tmp_path / "runs/distill" / f"run-{i:03d}")
    started = time.process_time()
    assert report([tmp_path / "runs"], tmp_path / "out").runs == 500
    assert time.process_time() - started < 10
    page = read(tmp_path / "out/index.html")
    assert "500 of 500 are finished" in page.text
    assert sum(tag == "a" and (attributes["href"] or "").startswith("runs/") for tag, attributes in page.tags) == 500


def test_a_page_is_whole_or_not_there(tmp_path, monkeypatch) -> None:
    report([RESULTS / "figure1"], tmp_path)
    before = (tmp_path / "index.html").read_text()
    monkeypatch.setattr("mlcpc.runs.os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        report([RESULTS / "figure2"], tmp_path)
    assert (tmp_path / "index.html").read_text() == before
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [
        *[(low, high, False) for low, high in ((0, 1), (-3.7, 12.7), (1e-12, 3e-12), (99.4, 99.6), (-5, -4), (0, 1e9))],
        *[(low, high, True) for low, high in ((1e-12, 3e-12), (99.4, 99.6), (2, 900), (1e-11, 1e3), (5, 5))],
    ],
)
def test_an_axis_holds_its_numbers_and_has_a_few_ticks_at_the_numbers_that_they_name(low, high, log) -> None:
    found = axis([low, high], 10, 110, log)
    assert 10 - 1e-9 <= found(low) <= found(high) <= 110 + 1e-9
    assert 2 <= len(found.ticks) <= 10
    for at, text in found.ticks:
        assert found.holds(at)
        assert math.isclose(value_of(text), at, rel_tol=1e-6, abs_tol=1e-9 * (high - low))


def value_of(text: str) -> float:
    """Of a tick: −2.5, 1,000 or 2·10⁻⁷."""
    small = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
    digits = text.rstrip(small)
    exponent = text[len(digits) :].translate(str.maketrans(small, "-0123456789"))
    if exponent:
        return float(digits.removesuffix("10").rstrip("·") or 1) * 10.0 ** int(exponent)
    return float(digits.replace(",", "").replace("−", "-"))
