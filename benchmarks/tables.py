"""Tables of measured numbers for docs/, from results/bench; `make readme` (benchmarks.readme) puts them in pages."""

import csv
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.small_batch import METHODS, paired

__all__ = ["TABLES"]

ROOT = Path(__file__).parent.parent
Row = dict[str, str]


def rows(name: str, **wanted: str) -> list[Row]:
    """Of results/bench/<name>.csv, those with these values."""
    text = (ROOT / "results" / "bench" / f"{name}.csv").read_text()
    return [row for row in csv.DictReader(text.splitlines()) if wanted.items() <= row.items()]


def table(head: list[str], body: list[list[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def ways(found: list[Row], columns: list[dict[str, str]], skip: str = "two-view") -> list[list[str]]:
    """A line for each way, with its ratio in each column's case."""
    names = dict.fromkeys(row["way"] for row in found if skip not in row["way"])

    def cell(way: str, column: dict[str, str]) -> str:
        ratio = [row["ratio"] for row in found if row["way"] == way and column.items() <= row.items()]
        return f"{float(ratio[0]):.2f}" if ratio else ""

    body = [[way, *(cell(way, column) for column in columns)] for way in names]
    return [line for line in body if any(line[1:])]


def losses_cpu() -> str:
    found = rows("loss", case="in-batch", d="128", dtype="float32")
    memory = {row["way"]: f"{float(row['extra_mb']):.0f} MB" for row in rows("loss_memory", n="8192")}
    body = ways(found, [{"n": n} for n in ("512", "2048", "8192")])
    head = ["processor, one thread, d = 128, float32", "n = 512", "2048", "8192", "memory at 8192"]
    return table(head, [[*line, memory.get(line[0], "")] for line in body])


def losses_gpu() -> str:
    body = ways(
        rows("loss_gpu", case="in-batch"),
        [
            *({"n": n, "d": "128", "dtype": "float32"} for n in ("2048", "8192", "32768")),
            {"n": "32768", "d": "512", "dtype": "bfloat16"},
        ],
    )
    return table([rows("loss_gpu")[0]["device"], "n = 2048", "8192", "32768", "32768, d = 512, bfloat16"], body)


def losses_two_view() -> str:
    found = rows("loss", case="in-batch", d="128", dtype="float32")
    body = [line for line in ways(found, [{"n": n} for n in ("512", "2048", "4096")], "#") if "two-view" in line[0]]
    return table(["two views, processor", "n = 512", "2048", "4096"], body)


def losses_queue() -> str:
    columns = [{"case": "queue", "dtype": dtype} for dtype in ("float32", "bfloat16")]
    body = [["processor: " + line[0], *line[1:]] for line in ways(rows("loss"), columns)]
    body += [["GPU: " + line[0], *line[1:]] for line in ways(rows("loss_gpu"), columns)]
    return table(["a queue of 65,536 keys, n = 256, d = 128", "float32", "bfloat16"], body)


def mi_tasks() -> str:
    found = rows("mi_peers")
    methods = list(dict.fromkeys(row["method"] for row in found))
    errors: dict[str, list[float]] = {method: [] for method in methods}
    body = []
    for task in dict.fromkeys(row["task"] for row in found):
        here = {row["method"]: row for row in found if row["task"] == task}
        line = [task, next(iter(here.values()))["truth"]]
        for method in methods:
            if method in here and here[method]["estimate"]:
                errors[method].append(abs(float(here[method]["estimate"]) - float(here[method]["truth"])))
                line.append(f"{float(here[method]['estimate']):.3f}")
            else:
                line.append("")
        body.append(line)
    body.append(["**mean absolute error**", "", *(f"**{statistics.mean(errors[method]):.3f}**" for method in methods)])
    seconds = [statistics.mean(float(row["seconds"]) for row in found if row["method"] == method) for method in methods]
    body.append(["seconds of one core, mean", "", *(f"{second:.1f}" for second in seconds)])
    return table(["task", "truth", *methods], body)


def small_batches() -> str:
    found = rows("small_batch")
    body = []
    for task in dict.fromkeys(row["task"] for row in found):
        for batch in dict.fromkeys(int(row["batch"]) for row in found):
            line = [f"{task}, n = {batch}"]
            for method in METHODS:
                mean, gain, half = paired(found, task, batch, method)
                text = f"{mean:.3f}" if method == "CPC" else f"{gain:+.3f} ± {half:.3f}".replace("-", "−")
                line.append(f"**{text}**" if method != "CPC" and abs(gain) > half else text)
            body.append(line)
    return table(["", *METHODS], body)


def stopwatch() -> str:
    """Seconds of each page, and what was typed."""
    found = rows("stopwatch")
    names = {"swap": "Swap a loss", "mi": "Measure a table", "distil": "Distil a network"}
    names |= {"pretrain": "Pretrain an encoder", "paper": "Understand the paper", "install": "Install"}
    body = []
    for page in dict.fromkeys(row["page"] for row in found):
        here = [row for row in found if row["page"] == page]
        minutes, seconds = divmod(round(sum(float(row["seconds"]) for row in here)), 60)
        longest = max(here, key=lambda row: float(row["seconds"]))
        what = f"{' '.join(longest['command'].split()[:2])}, {float(longest['seconds']):.0f} s"
        body.append([names[page], str(len(here)), f"{minutes}:{seconds:02}", what])
    return table(["", "steps", "minutes", "the longest of them"], body)


def start(page: str, **words: str) -> str:
    """What the runs of a quick start came to."""
    found = {row["command"]: row["top1"] for row in rows("stopwatch", page=page)}
    said = []
    for word, part in words.items():
        (top1,) = [top1 for command, top1 in found.items() if part in command]
        said.append(f"{word.replace('_', ' ')} {float(top1):.1%}".replace("%", " %"))
    return ", ".join(said)


TABLES: dict[str, Callable[[], str]] = {
    "losses-cpu": losses_cpu,
    "losses-gpu": losses_gpu,
    "losses-two-view": losses_two_view,
    "losses-queue": losses_queue,
    "mi-tasks": mi_tasks,
    "small-batches": small_batches,
    "stopwatch": stopwatch,
    "start-distil": lambda: start("distil", alone="train", **{"ML-CPC": "ml-cpc", "KD": "kd"}),
    "start-pretrain": lambda: start("pretrain", learnt_features="probe --run", random_weights="probe --network"),
}
