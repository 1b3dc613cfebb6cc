"""For mkdocs: pages may point to files of the repository outside docs/; those come along into the site."""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
EXAMPLE = re.compile("^```python\n>>>", re.MULTILINE)  # with prompts, which the copy button leaves out
LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+)")


def outside(page: str, link: str) -> Path | None:
    """The file that a link from docs/<page> means, relative to the repository, where it is not below docs/."""
    path = Path(os.path.normpath(Path("docs", page).parent / link))
    return path if path.parts[0] not in ("docs", "..") else None


def on_files(files: Files, config: Any) -> Files:
    for page in list(files.documentation_pages()):
        for _, link in LINK.findall(page.content_string):
            path = outside(page.src_uri, link)
            if path and path.as_posix() not in files.src_uris and (ROOT / path).is_file():
                files.append(File.generated(config, path.as_posix(), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """`../results/x.svg` in docs/index.md is results/x.svg in the site."""

    def inside(match: re.Match[str]) -> str:
        path = outside(page.file.src_uri, match[2])
        return match[0] if path is None else match[1] + os.path.relpath(path, Path(page.file.src_uri).parent)

    return EXAMPLE.sub("```pycon\n>>>", LINK.sub(inside, markdown))
