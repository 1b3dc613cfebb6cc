"""The report in headless Chromium: seen, silent, alone, narrow, by keyboard, accessible, on paper.

playwright, because it drives the system's Chromium over a pipe without a separate driver, sees the console and every
request, and sets colours, width and medium. axe-core (npm) is not kept here: AXE names its axe.min.js, or it lies in
node_modules.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcpc.report import report
from test_report import RESULTS, make_run

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium was found: apt-get install chromium", allow_module_level=True)
AXE = Path(os.environ.get("AXE", Path(__file__).parent.parent / "node_modules/axe-core/axe.min.js"))
PAGES = ("index.html", "runs/net-s0-0123456789.html", "runs/cut-s1-0123456789.html")
WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A report over the committed results and three runs: finished, unfinished, and one with a long name."""
    root = tmp_path_factory.mktemp("browser")
    make_run(root / "runs", section="distill", config={"objective": "ml_cpc", "alpha": "0.05", "teacher": "resnet56"})
    cut = make_run(root / "runs", "cut-s1-0123456789", config={"epochs": 9})
    (cut / "result.json").unlink()
    (cut / "metrics.jsonl").write_text((cut / "metrics.jsonl").read_text()[:-9])
    make_run(root / "runs", "long" * 30, "pretrain", config={"network": "a_very_long_name_of_a_network" * 4})
    report([RESULTS, root / "runs"], root / "out")
    return root / "out"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser, folder) -> Iterator[Any]:
    """Open a page; at the end nothing may have been said on the console, and nothing asked for but the page."""
    contexts, said, asked = [], [], []

    def open_page(name: str, width: int = 1280, scheme: str = "light") -> Any:
        contexts.append(
            browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
        )
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((folder / name).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url.partition("#")[0] for url in asked} <= {path.as_uri() for path in folder.rglob("*.html")}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_figure_is_seen_and_nothing_is_wider_than_the_screen(visit, name, width, scheme) -> None:
    page = visit(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.locator(".plot > svg").all()
    assert shown
    for svg in shown:
        box = svg.bounding_box()
        assert box["width"] > 250
        assert box["height"] > 80
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    inks = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")
    levels = [sum(map(int, ink[4:-1].split(", "))) for ink in inks]
    assert (levels[0] > levels[1]) == (scheme == "light")


def test_labels_of_a_chart_do_not_lie_on_each_other(visit) -> None:
    """Neither ticks nor names, on a phone, where they are largest."""
    for name in PAGES:
        page = visit(name, 390)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        assert page.evaluate(OVERLAPS) == []


OVERLAPS = """() => [...document.querySelectorAll('.plot > svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([b, q]) =>
    Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1
    && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4
  ).map(([b]) => `${svg.ariaLabel}: ${a} / ${b}`));
})"""


def test_a_pointer_and_the_arrow_keys_read_the_same_numbers(visit) -> None:
    page = visit("index.html")
    plot = page.locator("#figure3 .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] / 2)
    by_pointer = page.locator(".tip").inner_text()
    assert by_pointer.startswith("10 nats")
    assert "4.71 ± 0.06 (4.71)" in by_pointer
    page.mouse.move(5, 5)
    assert page.locator(".tip").count() == 0
    plot.focus()
    page.keyboard.press("End")
    assert page.locator(".tip").inner_text() == by_pointer
    assert "4.71 ± 0.06 (4.71)" in plot.get_attribute("aria-valuetext")
    assert plot.get_attribute("aria-valuenow") == "4"
    page.keyboard.press("ArrowLeft")
    assert page.locator(".tip").inner_text().startswith("8 nats")
    page.keyboard.press("Escape")
    assert page.locator(".tip").count() == 0


def test_the_page_can_be_walked_with_the_keyboard_alone(visit) -> None:
    page = visit("index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = []
    for _ in range(400):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None:
            break
        reached.append(found)
    assert [each for each in reached if not each[2] or each[3] == "none"] == []
    kinds = {kind for _, kind, _, _ in reached}
    assert {"plot", "scroll"} <= kinds
    tags = [tag for tag, _, _, _ in reached]
    assert {"A", "BUTTON", "SUMMARY", "DIV"} <= set(tags)
    assert tags.count("DIV") >= page.locator(".plot:visible").count()


FOCUSED = """() => {
  const at = document.activeElement, box = at.getBoundingClientRect();
  const seen = box.width > 0 && box.height > 0 && box.top < innerHeight && box.bottom > 0;
  return at === document.body ? null : [at.tagName, at.className, seen, getComputedStyle(at).outlineStyle];
}"""


def test_colours_can_be_chosen_and_stay_chosen(visit) -> None:
    page = visit("index.html")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.get_by_role("button", name="Switch to dark colours").click()
    dark = page.evaluate(ground)
    assert dark != before
    page.reload()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Switch to light colours").click()
    assert page.evaluate(ground) == before


def test_runs_can_be_filtered(visit, folder, tmp_path) -> None:
    for i in range(14):
        make_run(tmp_path / "runs", f"net-{i}", config={"seed": i})
    report([tmp_path / "runs"], folder / "many")
    page = visit("many/index.html")
    page.get_by_label("Filter").fill("seed 13")
    assert page.locator("#runs tbody tr:visible").count() == 1


def test_without_script_everything_is_there_but_the_read_outs(browser, folder) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 900})
    page = context.new_page()
    page.goto((folder / "index.html").as_uri())
    assert page.locator(".plot > svg:visible").count() > 6
    assert page.locator("#theme:visible").count() == 0
    page.locator("#figure1 summary", has_text="numbers").first.click()
    assert page.locator("#figure1 table:visible").count() >= 2
    context.close()


def test_on_paper_nothing_is_cut_off_and_no_button_is_printed(visit, tmp_path) -> None:
    page = visit("index.html", 794, "dark")  # the width of A4
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    assert page.locator("#theme:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core was not found: npm install axe-core, or AXE=…/axe.min.js")
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing(browser, folder, name, width, scheme) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto((folder / name).as_uri())
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
    context.close()
    assert [(each["id"], each["nodes"][0]["html"][:200], len(each["nodes"])) for each in found] == []
