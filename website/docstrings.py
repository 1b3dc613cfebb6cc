"""For mkdocstrings: our plain docstrings as Markdown. Examples become code, aligned lists of names become lists."""

import re
from typing import Any

import griffe

ITEM = re.compile(r"^(\w[\w, ]*?) {2,}(\S.*)$")


def markdown(text: str) -> str:
    """The docstring with its examples fenced and its `name   what it is` lines as a list."""
    lines: list[str] = []
    fenced, item = False, 0
    for line in text.splitlines():
        if line.startswith(">>> ") and not fenced:
            lines += ["", "```pycon"]
            fenced = True
        elif fenced and not line.strip():
            lines += ["```"]
            fenced = False
        found = None if fenced else ITEM.match(line)
        if found or (item and re.fullmatch(r"\w[\w, ]* ", line[:item])):  # a long name has one space behind it
            lines += [] if item else [""]
            item = len(line) - len(found[2]) if found else item
            lines += [f"- **{line[:item].strip()}**: {line[item:]}"]
        elif item and line.startswith(" " * item) and line.strip():
            lines += [f"  {line.strip()}"]
        else:
            item = 0
            lines += [line]
    return "\n".join(lines + ["```"] * fenced)


class Markdown(griffe.Extension):
    """Applied to every docstring that is shown."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
