"""The five quick starts as a newcomer meets them: a copy of this tree, a new environment, then what the pages say.

    python -m benchmarks.stopwatch [INSTALLER ARGUMENTS …]     writes results/bench/stopwatch.csv

What is typed comes from the pages themselves: their commands, but for those that need a download, and their examples in
Python as one script. Arguments go to pip, such as an index of torch's CPU builds. Ten minutes on two cores.
"""

import csv
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ("swap", "mi", "distil", "pretrain", "paper")
LONG = ("cifar", "demo")  # what these pages say is for a GPU, or takes two minutes of its own


def copied(folder: Path) -> Path:
    """What a clone would have of this tree."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    clone = folder / "mlcpc"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((ROOT / name).read_bytes())
    return clone


def typed(page: str) -> tuple[list[str], str]:
    """A page's commands, and its examples as a script."""
    text = (ROOT / "docs" / "start" / f"{page}.md").read_text()
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    code = "".join(line[4:] + "\n" for block in blocks for line in block.splitlines() if line[:4] in (">>> ", "... "))
    return [line for line in lines if not any(word in line for word in LONG)], re.sub(
        r"^(?=\S)", "\n", code, flags=re.M
    )


def clocked(command: list[str], clone: Path, **more: str) -> dict[str, float]:
    """Seconds that went by, and those of the processor: what others do on the machine changes the first only."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=clone, check=True, stdout=subprocess.DEVNULL, env=os.environ | more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.perf_counter() - begin, 1), "processor_seconds": round(busy, 1)}


def walked(page: str, clone: Path) -> list[dict[str, object]]:
    """Every command of a page, with its seconds and, of a run, its accuracy."""
    commands, code = typed(page)
    path = {"PATH": f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}"}
    rows: list[dict[str, object]] = []
    latest = ""
    for line in commands:
        line = line.split(" #")[0].strip()
        before = set(clone.glob("runs/*/*/result.json"))
        times = clocked(["bash", "-c", line.replace("runs/pretrain/…", latest)], clone, **path)
        found = [path for path in clone.glob("runs/*/*/result.json") if path not in before]
        row: dict[str, object] = {"page": page, "command": line, **times, "top1": ""}
        for result in sorted(found, key=lambda path: path.stat().st_mtime):
            latest = str(result.parent.relative_to(clone)) if result.parts[-3] == "pretrain" else latest
            row["top1"] = json.loads(result.read_text()).get("top1", "")
        rows.append(row)
        print(row, flush=True)
    if code:
        times = clocked([str(clone / ".venv" / "bin" / "python"), "-c", code], clone)
        rows.append({"page": page, "command": "its examples in Python", **times, "top1": ""})
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        clone = copied(Path(folder))
        python = clone / ".venv" / "bin" / "python"
        wanted = [".[cli,mi,train]", "scikit-learn"]
        install = [str(python), "-m", "pip", "install", "--quiet", "-c", "constraints.txt", *sys.argv[1:], *wanted]
        rows: list[dict[str, object]] = []
        doctor = [str(python), "-m", "mlcpc", "doctor"]
        for command, words in (("venv", [sys.executable, "-m", "venv", ".venv"]), ("pip", install), ("doctor", doctor)):
            rows.append({"page": "install", "command": command, **clocked(words, clone), "top1": ""})
        for page in PAGES:
            rows += walked(page, clone)
    with (ROOT / "results" / "bench" / "stopwatch.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "cores"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | {"cores": len(os.sched_getaffinity(0))} for row in rows)


if __name__ == "__main__":
    main()
