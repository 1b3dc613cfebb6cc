"""The scenes of `reliability.faults`: each raises AssertionError where something is not as it should be."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcpc.config import InputError
from mlcpc.data.download import download
from mlcpc.sweep import Job, schedule, sweep
from reliability.crash import SUBJECTS, Campaign, fingerprint
from reliability.processes import PATIENCE, Started, alive, descendants, spawn, start
from reliability.server import CONTENT, MD5

__all__ = ["SCENES", "SkippedError", "refused"]

BOUND = 30.0
"""seconds in which the others of a rank that died must have stopped"""


class SkippedError(Exception):
    """A scene that cannot be played here."""


@contextmanager
def disk(place: Path, size: str) -> Iterator[None]:
    """A file system of its own in `place`."""
    place.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True, text=True
    )
    if made.returncode:
        raise SkippedError(f"no file system may be mounted here ({made.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def change(place: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", place], check=True)


def refused(started: Started, words: str, code: int = 2, within: float = 120.0) -> None:
    """It ended by itself, with that code and one line that says so."""
    began = time.monotonic()
    if not started.wait(within):
        started.kill()
        raise AssertionError(f"still there after {within:.0f} s: {started.said[-200:]}")
    said = started.said
    if code not in started.codes.values() or words not in said or "Traceback" in said:
        raise AssertionError(f"codes {started.codes} after {time.monotonic() - began:.0f} s, it said: {said[-400:]}")


def clean(folder: Path) -> None:
    """Nothing temporary."""
    left = [path.name for path in folder.rglob(".*") if path.name not in (".lock", ".file.lock")]
    if left:
        raise AssertionError(f"left behind: {left}")


def ends_alike(campaign: Campaign, name: str, folder: Path) -> None:
    """Started again it goes on to the end that it would have had."""
    folder.with_name(f"{folder.name}.log").unlink(missing_ok=True)
    campaign.finish(campaign.begin(SUBJECTS[name], folder))
    wanted, found = campaign.whole(name)[0], fingerprint(folder)
    odd = sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))
    if odd:
        raise AssertionError(f"another end: {', '.join(odd[:4])}")


def started_some(campaign: Campaign, name: str, folder: Path) -> None:
    """Killed when it had two checkpoints."""
    campaign.whole(name)
    started = campaign.begin(SUBJECTS[name], folder)
    while len(list(folder.rglob("checkpoint-*"))) < 2 and not started.poll():
        time.sleep(0.002)
    started.kill()
    started.wait(30)


def full_disk(campaign: Campaign, folder: Path) -> None:
    """While checkpoints are written, at a random amount of room; then there is room again."""
    for name in ("train", "distill", "pretrain"):
        campaign.whole(name)
        with disk(folder, f"{campaign.chance.randint(4, 350) * 4}k"):
            refused(campaign.begin(SUBJECTS[name], folder), "No space left on device")
            clean(folder)
            campaign.readable(folder)
            change(folder, "size=100m")
            ends_alike(campaign, name, folder)
        folder.with_name(f"{folder.name}.log").unlink(missing_ok=True)


def full_disk_download(campaign: Campaign, folder: Path) -> None:
    with disk(folder, "400k"):
        refused(campaign.begin(SUBJECTS["download"], folder), "No space left on device")
        clean(folder)
        change(folder, "size=100m")
        ends_alike(campaign, "download", folder)


def full_disk_staircase(campaign: Campaign, folder: Path) -> None:
    name = "staircase and figure"
    campaign.whole(name)
    with disk(folder, f"{campaign.chance.randint(8, 100)}k"):
        refused(campaign.begin(SUBJECTS[name], folder), "No space left on device")
        change(folder, "size=100m")
        ends_alike(campaign, name, folder)


def file_too_large(campaign: Campaign, folder: Path) -> None:
    """A quota on files' sizes."""
    campaign.whole("train")
    kept = campaign.begin(SUBJECTS["train"], folder, {"FSIZE": str(campaign.chance.randint(1000, 500_000))})
    refused(kept, "File too large")
    clean(folder)
    ends_alike(campaign, "train", folder)


def read_only_disk(campaign: Campaign, folder: Path) -> None:
    """Half-way, and at the start; what was finished before can still be looked at."""
    with disk(folder, "100m"):
        started_some(campaign, "train", folder)
        change(folder, "ro")
        refused(campaign.begin(SUBJECTS["train"], folder), "Read-only file system")
        change(folder, "rw")
        ends_alike(campaign, "train", folder)
        change(folder, "ro")
        campaign.finish(start(SUBJECTS["train"].words, folder))
        change(folder, "rw")


def rank_dies(campaign: Campaign, folder: Path) -> None:
    """The other says so within a bound."""
    campaign.whole("pretrain, two ranks")
    subject = SUBJECTS["pretrain, two ranks"]
    started = campaign.begin(subject, folder)
    while not list(folder.rglob("checkpoint-*")) and not started.poll():
        time.sleep(0.002)
    dying = campaign.chance.randrange(2)
    started.kill(dying)
    if started.ranks:
        refused(started, "another rank has died", 1, BOUND)
    ends_alike(campaign, "pretrain, two ranks", folder)


def rank_hangs(campaign: Campaign, folder: Path) -> None:
    """It is stopped, not dead."""
    subject = SUBJECTS["pretrain, two ranks"]
    campaign.whole("pretrain, two ranks")
    started = campaign.begin(subject, folder)
    while not list(folder.rglob("checkpoint-*")) and not started.poll():
        time.sleep(0.002)
    hung = next((process for process, rank in started.ranks.items() if rank == 1), None)
    if hung is None:
        return
    os.kill(hung, signal.SIGSTOP)
    other = Started(started.log, {process: rank for process, rank in started.ranks.items() if rank == 0})
    try:
        refused(other, "has not answered", 1, PATIENCE + BOUND)
    finally:
        os.kill(hung, signal.SIGKILL)
        os.waitpid(hung, 0)
    ends_alike(campaign, "pretrain, two ranks", folder)


def rank_dies_under_torchrun(campaign: Campaign, folder: Path) -> None:
    """torchrun ends the other; nobody is left."""
    started = spawn(SUBJECTS["train"].words, folder, 2)
    ranks: list[int] = []
    until = time.monotonic() + 120
    while not list(folder.rglob("config.json")):
        if time.monotonic() > until or started.poll():
            raise AssertionError(f"it did not begin: {started.said[-300:]}")
        time.sleep(0.01)
    ranks = [child for process in started.ranks for child in descendants(process)]
    os.kill(campaign.chance.choice(ranks), signal.SIGKILL)
    if not started.wait(90):
        raise AssertionError("torchrun waits for ever")
    if 0 in started.codes.values():
        raise AssertionError("torchrun says all is well")
    left = [rank for rank in ranks if alive(rank)]
    if left:
        raise AssertionError(f"left alive: {left}")


def clock_jumps(campaign: Campaign, folder: Path) -> None:
    """time.time() goes anywhere, at every call."""
    for name in ("train", "distill"):
        campaign.whole(name)
        campaign.finish(campaign.begin(SUBJECTS[name], folder / name, {"CLOCK": "1"}))
        if fingerprint(folder / name) != campaign.whole(name)[0]:
            raise AssertionError(f"{name} ended otherwise")


def two_at_once(campaign: Campaign, folder: Path) -> None:
    """One computes, the other is refused, or reads the result."""
    campaign.whole("train")
    both = [campaign.begin(SUBJECTS["train"], folder) for _ in range(2)]
    if not all(one.wait(120) for one in both):
        raise AssertionError("they wait for each other")
    codes = sorted(code for one in both for code in one.codes.values())
    if codes not in ([0, 2], [0, 0]) or (codes == [0, 2] and "another process is computing" not in both[0].said):
        raise AssertionError(f"exit codes {codes}: {both[0].said[-300:]}")
    if fingerprint(folder) != campaign.whole("train")[0]:
        raise AssertionError("they ended otherwise")


def damaged_checkpoint(campaign: Campaign, folder: Path) -> None:
    """The newest cut off, changed or emptied: the one before is used; all of them damaged: it begins anew."""
    for name, which in (("train", 1), ("distill", 1), ("train", 2)):
        shutil.rmtree(folder, ignore_errors=True)
        started_some(campaign, name, folder)
        found = sorted(folder.rglob("checkpoint-*"), key=lambda path: path.name)
        for path in found[-which:]:
            content = bytearray(path.read_bytes())
            at = campaign.chance.randrange(len(content))
            if campaign.chance.random() < 0.5:
                del content[at:]
            else:
                content[at] ^= 1 << campaign.chance.randrange(8)
            path.write_bytes(content)
        ends_alike(campaign, name, folder)
        if found and "Going back" not in Started(folder.with_name(f"{folder.name}.log"), {}).said:
            raise AssertionError("nothing was said")


def damaged_data(campaign: Campaign, folder: Path) -> None:
    """A bit of the part that is there already, or of what the server sends."""
    folder.mkdir(parents=True)
    content = bytearray(CONTENT)
    content[campaign.chance.randrange(len(content))] ^= 1
    (folder / ".file.part").write_bytes(content[: campaign.chance.randrange(len(content))])
    if download(campaign.url, MD5, folder / "file").read_bytes() != CONTENT:
        raise AssertionError("the file is not the server's")
    try:
        download(campaign.url, MD5.translate(str.maketrans("0123", "1230")), folder / "other")
    except InputError as error:
        if "md5" not in str(error) or (folder / "other").exists():
            raise AssertionError(f"it said {error}") from error
    else:
        raise AssertionError("another md5 was taken")


def memory_of_a_sweep(campaign: Campaign, folder: Path) -> None:
    """Real MemoryErrors while more than two run at once: fewer at a time; one that never fits is reported."""
    folder.mkdir(parents=True)
    script = folder / "job.py"
    script.write_text(HUNGRY)
    python = (sys.executable, "-I", "-S", str(script))
    names = ["a", "b", "c", "d", "glutton"]
    jobs = [Job(name, (str(folder / name),), folder / name, program=python) for name in names]
    schedule.POLL = 0.02
    states = {state.job.name: state for state in sweep(jobs, slots=4, devices=("cpu",), retries=3)}
    if [states[name].status for name in names] != ["done"] * 4 + ["failed"]:
        raise AssertionError(f"{[(s.job.name, s.status, s.message) for s in states.values()]}")
    if "MemoryError" not in states["glutton"].message:
        raise AssertionError(f"it is reported as {states['glutton'].message!r}")


#: Takes 100 MB of a machine of 250, which the jobs that run share.
HUNGRY = """
import fcntl, os, resource, sys, time
folder = sys.argv[1]
root, name = os.path.split(folder)
held = []
for slot in range(9):
    lock = open(os.path.join(root, f"slot{slot}"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.append(slot)
        continue
    break
time.sleep(0.3)
resource.setrlimit(resource.RLIMIT_AS, ((250 << 20) // (len(held) + 1) + (20 << 20),) * 2)
room = bytearray((400 if name == "glutton" else 100) << 20)
time.sleep(0.3)
with open(os.path.join(folder, ".result"), "w") as file:
    file.write("{}")
os.replace(os.path.join(folder, ".result"), os.path.join(folder, "result.json"))
"""

SCENES: dict[str, Callable[[Campaign, Path], None]] = {
    scene.__name__: scene
    for scene in (
        full_disk,
        full_disk_download,
        full_disk_staircase,
        file_too_large,
        read_only_disk,
        rank_dies,
        rank_hangs,
        rank_dies_under_torchrun,
        clock_jumps,
        two_at_once,
        damaged_checkpoint,
        damaged_data,
        memory_of_a_sweep,
    )
}
