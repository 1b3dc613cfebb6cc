"""How much of a target is done, from the folders of its runs and of its pictures; nothing is computed or locked."""

from dataclasses import dataclass
from pathlib import Path

from mlcpc.reproduce.target import Target
from mlcpc.runs import Place, run_folder
from mlcpc.sweep import State
from mlcpc.sweep.jobs import look

__all__ = ["Standing", "standing"]


@dataclass(frozen=True)
class Standing:
    """Of one target at one scale."""

    done: int
    """runs"""
    total: int
    begun: tuple[float | None, ...]
    """of each run that was begun and is not done: its share in [0, 1], where that is known"""
    drawn: bool

    def __str__(self) -> str:
        """
        >>> print(Standing(1, 1, (), True))
        done and drawn
        >>> print(Standing(5, 17, (0.4, None), False))
        5 of 17 runs done, 2 begun (40 %)
        >>> print(Standing(0, 1, (0.25,), False))
        interrupted at 25 %
        >>> print(Standing(0, 1, (), True))
        drawn; its runs are not here
        >>> print(Standing(0, 17, (), False))
        nothing
        """
        if self.done == self.total:
            return "done and drawn" if self.drawn else "done, not drawn"
        shares = ", ".join(f"{100 * share:.0f} %" for share in self.begun if share is not None)
        if self.total == 1 and self.begun:
            return f"interrupted at {shares}" if shares else "interrupted"
        words = [f"{self.done} of {self.total} runs done"] if self.done or self.begun else []
        if self.begun:
            words.append(f"{len(self.begun)} begun" + (f" ({shares})" if shares and len(self.begun) < 4 else ""))
        if self.drawn:
            words.append("drawn" if words else "drawn; its runs are not here")
        return ", ".join(words) or "nothing"


def standing(target: Target, scale: str, out: Path, runs: Path) -> Standing:
    """Where it stands; a run that goes on at this moment counts as begun."""
    config = target.scales[scale].config
    drawn = (out / target.name / scale / "checks.json").exists()
    if target.reads:
        return Standing(int(drawn), 1, (), drawn)
    if target.jobs is None:
        folder = run_folder(config, target.section, runs)
        if (folder / "result.json").exists():
            return Standing(1, 1, (), drawn)
        begun = (target.begun(config, folder),) if (folder / "config.json").exists() else ()
        return Standing(0, 1, begun, drawn)
    jobs = target.jobs(config, Place(runs=runs))
    there = {path for section in {job.folder.parent for job in jobs} for path in section.glob("*")}
    states = [State(job) for job in jobs if job.folder in there]
    unfinished = [state for state in states if not state.job.done and (state.job.folder / "config.json").exists()]
    for state in unfinished:
        look(state)
    done = sum(state.job.done for state in states)
    return Standing(done, len(jobs), tuple(state.progress for state in unfinished), drawn)
