"""What runs, what failed, and how long it will take."""

from collections import Counter
from typing import TYPE_CHECKING

from mlcpc.config import InputError
from mlcpc.sweep.jobs import State

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["table", "time_left"]


def table(states: list[State]) -> "Table":
    """Rows for what runs, what failed and what waits to be tried again; counts and the time left below."""
    try:
        from rich.box import SIMPLE
        from rich.markup import escape
        from rich.table import Table
    except ImportError as missing:
        raise InputError("rich is not installed: pip install 'mlcpc[cli]'") from missing
    left = time_left(states)
    words = _counts(states) + (f"; about {_duration(left)} left" if left else "")
    sheet = Table("run", "", "attempt", "time", "done", "where", "what it said", box=SIMPLE, caption=words)
    for state in states:
        if state.status in ("running", "failed") or (state.status == "waiting" and state.message):
            share = "" if state.progress is None else f"{state.progress:.0%}"
            time, said = _duration(state.seconds), escape(state.message)
            cells = (escape(state.job.name), state.status, str(state.attempts), time, share, escape(state.worker), said)
            sheet.add_row(*cells, style="red" if state.status == "failed" else "")
    return sheet


def time_left(states: list[State]) -> float | None:
    """Seconds, if the jobs to come take as long as those that are done, as many at a time as run now.

    None where nothing is known yet; a running job's own pace, where its metrics tell, counts before the mean.
    """
    running = [state for state in states if state.status == "running"]
    waiting = sum(state.status == "waiting" for state in states)
    whole = [state.seconds for state in states if state.status == "done" and state.seconds > 0]
    whole = whole or [state.left / (1 - state.progress) for state in running if state.left and state.progress]
    if not running and not waiting:
        return 0.0
    if not whole and (waiting or any(state.left is None for state in running)):
        return None
    mean = sum(whole) / max(1, len(whole))
    lefts = [max(0.0, mean - state.seconds) if state.left is None else state.left for state in running]
    return max([*lefts, (sum(lefts) + waiting * mean) / max(1, len(running))])


def _counts(states: list[State]) -> str:
    counts = Counter(state.status for state in states)
    order = ("running", "done", "failed", "blocked", "waiting")
    return ", ".join(f"{counts[status]} {status}" for status in order if counts[status])


def _duration(seconds: float) -> str:
    """
    >>> _duration(59.6), _duration(3599), _duration(90000)
    ('1 min', '1 h', '25 h')
    """
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes and hours < 24 else f"{hours} h"
