"""Tables of measured numbers for docs/, from results/bench; `make readme` (benchmarks.readme) puts them in pages."""

import csv
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.small_batch import METHODS, paired

__all__ = ["TABLES"]

ROOT = Path(__file__).parent.parent
Row = dict[str, str]


def results(path: str) -> list[Row]:
    """The rows of a file below results/."""
    return list(csv.DictReader((ROOT / "results" / path).read_text(encoding="utf-8").splitlines()))


def rows(name: str, **wanted: str) -> list[Row]:
    """Of results/bench/<name>.csv, those with these values."""
    return [row for row in results(f"bench/{name}.csv") if wanted.items() <= row.items()]


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


def small_batch_found() -> str:
    """How many of ML-CPC's differences to CPC are told from nothing."""
    found = rows("small_batch")
    cells = {(row["task"], int(row["batch"]), row["method"]) for row in found if row["method"].startswith("ML")}
    differences = [paired(found, *cell)[1:] for cell in cells]
    better = sum(gain > half for gain, half in differences)
    worse = sum(gain < -half for gain, half in differences)
    return f"of {len(cells)} differences to CPC, {better} is above zero by its 95 % interval and {worse} below"


def small_batch_settings() -> str:
    """What temperature and method move, on validation rows, each at the best of the rest; the mean over batch sizes."""
    found = rows("small_batch_tuning")

    def moved(task: str, setting: str, fixed: str) -> float:
        best: dict[tuple[str, str], dict[str, float]] = {}
        for row in (row for row in found if row["task"] == task):
            cell = best.setdefault((row["batch"], row[fixed] if fixed else ""), {})
            cell[row[setting]] = max(cell.get(row[setting], 0.0), float(row["valid"]))
        return statistics.mean(max(cell.values()) - min(cell.values()) for cell in best.values())

    tasks = list(dict.fromkeys(row["task"] for row in found))
    return table(
        ["on average, the score moves with", *tasks],
        [
            ["the temperature, 0.05 to 0.2", *(f"{moved(task, 'temperature', 'method'):.3f}" for task in tasks)],
            ["the rate, a factor of 4", *(f"{moved(task, 'rate', 'method'):.3f}" for task in tasks)],
            ["objective and α", *(f"{moved(task, 'method', ''):.3f}" for task in tasks)],
        ],
    )


def stopwatch() -> str:
    """Seconds of each page, and what was typed."""
    found = rows("stopwatch")
    names = {"swap": "Swap a loss", "mi": "Measure a table", "distil": "Distil a network"}
    names |= {"pretrain": "Pretrain an encoder", "paper": "Understand the paper", "install": "Install"}
    body = []
    for page in dict.fromkeys(row["page"] for row in found):
        here = [row for row in found if row["page"] == page]
        times = [sum(float(row[kind]) for row in here) for kind in ("processor_seconds", "seconds")]
        longest = max(here, key=lambda row: float(row["processor_seconds"]))
        what = f"{' '.join(longest['command'].split()[:2])}, {float(longest['processor_seconds']):.0f} s"
        body.append([names[page], str(len(here)), *(f"{time // 60:.0f}:{time % 60:02.0f}" for time in times), what])
    return table(["", "steps", "processor", "passed", "the longest of them"], body)


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
    "small-batch-found": small_batch_found,
    "small-batch-settings": small_batch_settings,
    "stopwatch": stopwatch,
    "start-distil": lambda: start("distil", alone="train", **{"ML-CPC": "ml-cpc", "KD": "kd"}),
    "start-pretrain": lambda: start("pretrain", learnt_features="probe --run", random_weights="probe --network"),
}
