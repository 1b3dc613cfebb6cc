"""When a job starts, and what happens after it ended; the same for every engine."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

from mlcpc.config import InputError
from mlcpc.sweep.child import GRACE, Ending
from mlcpc.sweep.cluster import Cluster
from mlcpc.sweep.jobs import Job, State, check, look
from mlcpc.sweep.local import Local

__all__ = ["ENGINES", "Engine", "sweep"]

POLL = 0.1
"""seconds between looks at the processes"""
LOOK = 1.0
"""seconds between looks at metrics, and between calls of `show`"""
LOSSES = 10
"""nodes that may be lost under a job; they are not counted as its failures"""
PATIENCE = 60.0
"""at most so many seconds until a run that another process was computing is tried again"""


class Engine(Protocol):
    """Where jobs run."""

    def room(self) -> int:
        """How many more jobs it would take."""
        ...

    def start(self, state: State) -> None:
        """Take a job; when it really runs, say so in `state`."""
        ...

    def news(self) -> Iterable[tuple[State, Ending]]:
        """Jobs that have ended since the last call."""
        ...

    def ask(self, number: int = signal.SIGTERM) -> None:
        """All jobs to leave."""
        ...

    def kill(self) -> None:
        """All jobs."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


ENGINES: dict[str, Callable[[int | None, Sequence[str] | None], Engine]] = {"local": Local, "ray": Cluster}


def sweep(
    jobs: Iterable[Job],
    *,
    slots: int | None = None,
    engine: str = "local",
    retries: int = 2,
    show: Callable[[list[State]], None] | None = None,
    devices: Sequence[str] | None = None,
) -> list[State]:
    """Run what is not done yet, each job after those it waits for; how each ended.

    slots    jobs at a time; None: as many as the devices bear
    engine   local: processes on this machine; ray: the cluster at RAY_ADDRESS, or a Ray of our own on this machine
    retries  how often a failed job is started again; never after exit code 2, bad input
    show     told every second
    devices  cpu, cuda, cuda:1, ...; None: every GPU, or the CPU where there is none
    """
    jobs = list(jobs)
    check(jobs)
    if slots is not None and slots < 1:
        raise InputError(f"slots is {slots} but must be 1 or more")
    if retries < 0:
        raise InputError(f"retries is {retries} but must be 0 or more")
    if engine not in ENGINES:
        raise InputError(f"engine is {engine!r}, which is not known: write one of {', '.join(ENGINES)}")
    work = _Work(jobs, retries, show or (lambda states: None))
    if not work.over():
        work.go(ENGINES[engine](slots, devices))
    work.show(work.states)
    return work.states


class _Work:
    """One call of `sweep`."""

    def __init__(self, jobs: list[Job], retries: int, show: Callable[[list[State]], None]) -> None:
        self.states = [State(job) for job in jobs]
        self.named = {state.job.name: state for state in self.states}
        self.followers = Counter(name for job in jobs for name in job.after)
        self.retries, self.show = retries, show
        self.given: set[str] = set()  # names that the engine has
        self.failures: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.delay: dict[str, float] = {}
        self.not_before: dict[str, float] = {}
        for state in self.states:
            self.if_done(state)

    def go(self, engine: Engine) -> None:
        shown = -LOOK
        with closing(engine), _asked_to_stop() as asked:
            try:
                while not self.over() and not asked:
                    self.block()
                    for state in self.ready(engine.room()):
                        self.start(state, engine)
                    for state, ending in engine.news():
                        self.end(state, ending)
                    if time.monotonic() - shown >= LOOK:
                        shown = time.monotonic()
                        self.look()
                    time.sleep(POLL)
            finally:
                self.leave(engine, asked)
            if asked:
                raise KeyboardInterrupt("the sweep was stopped; what its runs have done is kept")

    def over(self) -> bool:
        return all(state.status in ("done", "failed", "blocked") for state in self.states)

    def if_done(self, state: State) -> bool:
        if state.job.done:
            state.status = "done"
            look(state)
        return state.status == "done"

    def block(self) -> None:
        """What waits for a job that failed will never start."""
        for state in self.states:
            for name in state.job.after if state.status == "waiting" else ():
                if self.named[name].status in ("failed", "blocked"):
                    state.status, why = "blocked", self.named[name]
                    state.message = why.message if why.status == "blocked" else f"{name} failed"

    def ready(self, room: int) -> list[State]:
        """What may start now: first what most others wait for."""
        now = time.monotonic()
        able = [
            state
            for state in self.states
            if state.status == "waiting"
            and state.job.name not in self.given
            and now >= self.not_before.get(state.job.name, now)
            and all(self.named[name].status == "done" for name in state.job.after)
        ]
        return sorted(able, key=lambda state: -self.followers[state.job.name])[: max(0, room)]

    def start(self, state: State, engine: Engine) -> None:
        if self.if_done(state):  # another sweep may have done it
            return
        try:
            state.job.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{state.job.folder} cannot be made: {error.strerror}") from error
        state.attempts += 1
        state.message, state.seconds = "", 0.0
        self.given.add(state.job.name)
        engine.start(state)

    def end(self, state: State, ending: Ending) -> None:
        """Done, failed for good, or once more."""
        name = state.job.name
        self.given.discard(name)
        state.seconds = time.monotonic() - (state.started or time.monotonic())
        state.status, state.message, state.worker = "waiting", ending.message, ""
        if ending.kind == "done":
            state.status = "done"
            look(state)
        elif ending.kind == "busy":
            state.attempts -= 1
            self.delay[name] = min(PATIENCE, 2 * self.delay.get(name, 0.5))
            self.not_before[name] = time.monotonic() + self.delay[name]
        elif ending.kind == "lost" and self.losses[name] < LOSSES:
            self.losses[name] += 1
        else:
            self.failures[name] += 1
            if ending.kind == "refused" or self.failures[name] > self.retries:
                state.status = "failed"

    def look(self) -> None:
        for state in self.states:
            if state.status == "running":
                state.seconds = time.monotonic() - (state.started or time.monotonic())
                look(state)
        self.show(self.states)

    def leave(self, engine: Engine, asked: list[int]) -> None:
        """Pass the signal on, or ask where it was an error that stops us, and wait; a second signal kills."""
        if self.given:
            engine.ask(asked[0] if asked else signal.SIGTERM)
        late, killed = time.monotonic() + GRACE + 5, False  # guards kill after GRACE
        while self.given and time.monotonic() < late + 5:
            if not killed and (len(asked) > 1 or time.monotonic() > late):
                engine.kill()
                killed = True
            for state, ending in engine.news():
                self.given.discard(state.job.name)
                state.status, state.worker = "waiting", ""
                if ending.kind == "done":
                    self.if_done(state)
            time.sleep(POLL)


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """The numbers of the SIGINTs and SIGTERMs so far. In a thread, nothing."""
    asked: list[int] = []
    before: dict[int, Any] = {}
    try:
        for kind in (signal.SIGINT, signal.SIGTERM):
            before[kind] = signal.signal(kind, lambda number, frame: asked.append(number))
    except ValueError:
        pass
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
