"""What the pages show runs, where they point there is something, and the site fetches nothing."""

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlcpc
from mlcpc import cli
from mlcpc.config import InputError

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CHEAP = {"bounds", "doctor", "--version"}
OTHERS = {"mlcpc", "torchrun", "git", "cd", "python3", ".", "ray", "eval", "docker"}


def each_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The slugs of a page's headings, as the site makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        words = re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode())
        found.add(re.sub(r"[-\s]+", "-", words.strip().lower()))
    return found


@each_page(PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} points to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} points to {link}: {sorted(anchors(target))}"


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^ +- [^:]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(listed) == len(set(listed))
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents} == set(listed)


@each_page(sorted((ROOT / "docs" / "start").glob("*.md")))
def test_a_quick_start_is_one_screen(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 60


@each_page(PAGES)
def test_every_block_of_python_is_run(page: Path) -> None:
    """As a doctest, or, where it is a whole script, by tests/test_examples.py."""
    for block in re.findall(r"^ *```(?:python| \{ \.python \})\n(.*?)^ *```", page.read_text(), re.M | re.S):
        script = re.fullmatch(r' *--8<-- "(examples/\w+\.py)"\n', block)
        assert (ROOT / script[1]).exists() if script else ">>>" in block, block


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command that a page shows, in words, with the page's name."""
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                for inner in re.findall(r"\$\((.*?)\)", line):
                    yield page.name, shlex.split(inner)
                for command in re.split(r"&&|\||;", re.sub(r"(^|\s)#.*", "", line)):
                    words = shlex.split(re.sub(r"\$\(.*?\)", "", command))
                    words = words[: words.index(">")] if ">" in words else words
                    while words and re.match(r"[A-Z_]+=", words[0]):
                        words = words[1:]
                    if words:
                        yield page.name, words


def told(words: list[str]) -> list[str] | None:
    """What mlcpc itself gets, where it is what is called."""
    if words[0] == "mlcpc":
        return words[1:]
    return words[words.index("mlcpc") + 1 :] if words[0] == "torchrun" else None


def test_commands_are_understood(capsys) -> None:
    """By the command line itself, which makes their configs and does not call them."""
    seen = 0
    for page, words in commands():
        arguments = told(words)
        if arguments is None:
            continue
        seen += 1
        try:
            assert arguments == ["--version"] or callable(cli.parse(arguments)) or arguments[0] == "completion"
        except SystemExit as stop:
            if stop.code:
                pytest.fail(f"{page}: {shlex.join(words)}: {capsys.readouterr().err}")
        except InputError as error:
            pytest.fail(f"{page}: {shlex.join(words)}: {error}")
    assert seen > 40


def test_a_wrong_command_is_found(capsys) -> None:
    """So the test above can fail."""
    for wrong in (["distil"], ["pretrain", "--alfa", "1"], ["train", "--network", "resnet9"]):
        with pytest.raises((SystemExit, InputError)):
            cli.parse(wrong)


def test_other_commands_name_what_there_is() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page, words in commands():
        where = f"{page}: {shlex.join(words)}"
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, where
        elif words[:2] == ["pip", "install"]:
            for asked in re.findall(r"\[([\w,]+)\]", " ".join(words)):
                assert set(asked.split(",")) <= set(extras), where
        elif words[:2] == ["python", "-m"]:
            name = words[2].replace(".", "/")
            assert (ROOT / f"{name}.py").exists() or (ROOT / name / "__main__.py").exists(), where
        elif words[0] == "python":
            assert (ROOT / words[1]).exists(), where
        else:
            assert words[0] in OTHERS, where


def test_cheap_commands_run(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    cheap = {
        tuple(arguments)
        for _, words in commands()
        if (arguments := told(words)) and (arguments[0] in CHEAP or arguments == ["reproduce"])
    }
    assert len(cheap) >= 4
    for arguments in cheap:
        assert cli.main(list(arguments)) == 0
        assert capsys.readouterr().out


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert project["version"] == cited == mlcpc.__version__
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert all(re.fullmatch(r"Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", section) for section in sections)


def test_ci_lints_before_it_tests_the_oldest_and_the_newest() -> None:
    lowest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    newest = max(re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text()), key=lambda v: int(v[2:]))
    assert lowest is not None
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for name in (".github/workflows/ci.yml", ".gitlab-ci.yml"):
        text = (ROOT / name).read_text()
        assert re.search(rf'{re.escape(lowest[1])}"[^\n]*lowest', text)
        assert f'"{newest}"' in text
        assert text.index("make check") < text.index("lowest", text.index("make check"))
        assert set(re.findall(r"make ([a-z-]+)", text)) <= set(targets)
    assert (ROOT / ".github/workflows/ci.yml").read_text().count("needs: lint") >= 3


def test_exit_codes_are_told_in_one_place() -> None:
    """The table has the codes that the command line returns, and no others."""
    page = (ROOT / "docs" / "how-to" / "command-line.md").read_text()
    returned = {
        node.value.value
        for node in ast.walk(ast.parse(Path(cli.__file__).read_text()))
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
    }
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)} == returned


@pytest.mark.slow
def test_the_site_is_built_and_fetches_nothing(tmp_path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: make docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text()):
            assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag), (page.name, tag)


def messages() -> Iterator[tuple[str, str]]:
    """Every InputError's text as it stands in the source, with … for what is filled in; and where."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError" and node.args:
                parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
                yield f"{path.name}:{node.lineno}", text


def test_messages_have_one_voice() -> None:
    """No shouting, no full stop at the end, no Error: in front; a choice is offered in the same words everywhere."""
    found = [(where, text) for where, text in messages() if text.strip("… ")]
    assert len(found) > 80
    for where, text in found:
        assert not re.search(r"[.!]$|^Error|^Invalid|\bplease\b|\bPlease\b", text), f"{where}: {text}"
        assert not re.search(r"is …: write one of", text), f"{where}: {text}"
        assert not re.match(r"(The|A|An|This|You|Your|No|Cannot|Could) ", text), f"{where}: {text}"
