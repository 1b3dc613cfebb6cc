"""The training loop: plain PyTorch on one device or, under torchrun, on many; what it was doing survives a kill.

A `Learner` says what a step is; `fit` does the rest: order of samples, precision, learning rate, gradient means over
ranks, metrics, checkpoints, interrupts. Every random number comes from (seed, epoch, step), so that a run that was
killed and resumed ends where it would have ended, bit for bit on a CPU.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from mlcpc import draws
from mlcpc.checkpoints import finite, load_newest, restore_optimizer, save_newest
from mlcpc.config import InputError
from mlcpc.metrics import Metrics
from mlcpc.plan import Plan, Progress, Rate
from mlcpc.ranks import Ranks
from mlcpc.runs import clear_unfinished

__all__ = ["DivergenceError", "Interrupted", "Learner", "Show", "fit"]


class DivergenceError(RuntimeError):
    """The loss is no longer a number, or has exploded; the last good checkpoint is kept."""


class Interrupted(KeyboardInterrupt):
    """Asked to stop; the run has written a checkpoint."""


class Batch(Protocol):
    """What a learner is given; `indices` are rows of the data set."""

    @property
    def indices(self) -> Tensor: ...


class Learner(Protocol):
    """What is trained. `parts` holds every network, bank and queue: it is what a checkpoint keeps."""

    @property
    def parts(self) -> nn.Module: ...

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    def loss(self, batch: Any, at: Progress) -> tuple[Tensor, dict[str, Tensor]]:
        """What to minimise on this rank's part of the batch, and numbers to log."""
        ...

    def after_step(self, batch: Any, at: Progress) -> None:
        """Updates that are no gradient's: queues, banks, averages."""
        ...

    def evaluate(self, at: Progress) -> dict[str, float]:
        """Numbers at an epoch's end, the same on every rank."""
        ...


Show = Callable[[Progress, dict[str, float]], None]
"""told of every logged line"""


def fit(
    learner: Learner,
    data: Any,
    plan: Plan,
    rate: Rate,
    folder: Path,
    ranks: Ranks | None = None,
    show: Show | None = None,
) -> list[dict[str, Any]]:
    """Train to the end of the plan, from the newest checkpoint in `folder` on; the rows of its finished epochs.

    data    anything with a length and `batches(order, device, key)`, which yields a batch for each tensor of indices;
            what is random about a sample comes from the key, (seed, epoch), and the sample's index
    """
    return _Run(learner, data, plan, rate, folder, ranks or Ranks(), show or (lambda at, numbers: None)).go()


class _Run:
    """One call of `fit`."""

    def __init__(
        self, learner: Learner, data: Any, plan: Plan, rate: Rate, folder: Path, ranks: Ranks, show: Any
    ) -> None:
        self.learner, self.data, self.plan, self.rate = learner, data, plan, rate
        self.folder, self.ranks, self.show = folder, ranks, show
        self.steps = plan.steps(len(data), ranks.size)
        self.done = 0
        self.seconds, self.started = 0.0, time.monotonic()
        self.saved = time.monotonic()
        self.sums: dict[str, Tensor] = {}  # since the last logged line, on the device
        self.totals: dict[str, float] = {}  # of the epoch up to there
        self.count = 0  # steps in the sums
        self.first_loss: float | None = None
        self.metrics = Metrics(folder, plan.tensorboard, ranks.rank == 0)

    def go(self) -> list[dict[str, Any]]:
        self.restore()
        with _asked_to_stop() as self.asked:
            for epoch in range(self.done // self.steps, self.plan.epochs):
                self.epoch(epoch)
        return self.ranks.said_by_first(self.metrics.epochs())  # type: ignore[no-any-return]

    def epoch(self, epoch: int) -> None:
        first = self.done - epoch * self.steps
        order = list(self.plan.order(len(self.data), epoch, first, self.ranks))
        batches = self.data.batches([rows for rows, _ in order], self.ranks.device, (self.plan.seed, epoch))
        for step, (batch, (_, weight)) in enumerate(zip(batches, order, strict=True), first):
            at = Progress(epoch, step, self.plan.epochs, self.steps, self.plan.seed, weight)
            self.step(batch, at)
            last = step + 1 == self.steps
            if last:
                self.finish(at)
            self.attend(at, last)

    def step(self, batch: Any, at: Progress) -> None:
        """One update."""
        torch.manual_seed(draws.seed_of(*at.key, "step", self.ranks.rank))  # of dropout and the like
        for group in self.learner.optimizer.param_groups:
            group["lr"] = self.rate(at)
        self.learner.optimizer.zero_grad(set_to_none=True)
        for piece in _pieces(batch, self.plan.accumulate):
            share = len(piece.indices) / len(batch.indices)
            with self.autocast():
                loss, numbers = self.learner.loss(piece, at)
            (loss * share).backward()  # type: ignore[no-untyped-call]
            numbers = {"loss": loss, **{name: value * at.weight for name, value in numbers.items()}}
            for name, value in numbers.items():
                self.sums[name] = self.sums.get(name, 0) + value.detach().double() * share
        self.count += 1
        self.ranks.mean_gradients(self.learner.optimizer)
        self.learner.optimizer.step()
        self.learner.after_step(batch, at)
        self.done += 1

    def attend(self, at: Progress, last: bool) -> None:
        """Log, write a checkpoint, stop: where it is time. Several ranks look up together, every few steps."""
        logging = last or self.done % self.plan.log_every == 0
        if self.ranks.size > 1 and not logging:
            return
        late = time.monotonic() - self.saved > self.plan.checkpoint_seconds
        stop, due = self.ranks.sum(self.asked.is_set, late and self.ranks.rank == 0)
        if logging and not last:
            self.log(at)
        if stop or due or (last and at.epoch + 1 == at.epochs):
            self.save(at)
        if stop:
            raise Interrupted(f"stopped after {self.done} steps; a checkpoint is in {self.folder}")

    def log(self, at: Progress) -> None:
        """The means since the last line, written and shown; the look that finds a loss gone astray."""
        sums = self.ranks.sum(*torch.stack(list(self.sums.values())).tolist())
        means = {name: total / (self.count * self.ranks.size) for name, total in zip(self.sums, sums, strict=True)}
        for name, mean in means.items():
            self.totals[name] = self.totals.get(name, 0.0) + mean * self.count
        self.sums, self.count = {}, 0
        self.check(means["loss"] * means.get("alpha", 1.0), at)  # it may have been divided by an α that falls
        self.report("step", at, means)

    def report(self, kind: str, at: Progress, numbers: dict[str, float]) -> None:
        row = {"epoch": at.epoch, "step": self.done, "rate": self.rate(at), **numbers}
        self.metrics.write({"kind": kind, **row, "seconds": self.elapsed()})
        self.show(at, row)

    def check(self, loss: float, at: Progress) -> None:
        first = self.first_loss = loss if self.first_loss is None else self.first_loss
        if math.isfinite(loss) and loss <= 100 * max(1.0, abs(first)):
            return
        raise DivergenceError(
            f"the loss is {loss:.4g} at epoch {at.epoch + 1}, step {at.step + 1} (it began at {first:.4g}): the run "
            f"has diverged. The last good checkpoint is kept in {self.folder}. Try a lower learning rate, or float32"
        )

    def finish(self, at: Progress) -> None:
        """An epoch's end: its line, with the evaluation."""
        self.log(at)
        means = {name: total / self.steps for name, total in self.totals.items()}
        self.totals = {}
        if (at.epoch + 1) % self.plan.evaluate_every == 0 or at.epoch + 1 == at.epochs:
            self.ranks.same(_running_statistics(self.learner.parts))
            with self.autocast():
                means |= self.learner.evaluate(at)
        self.report("epoch", at, means)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=self.plan.precision == "bfloat16")

    def elapsed(self) -> float:
        return round(self.seconds + time.monotonic() - self.started, 2)

    def save(self, at: Progress) -> None:
        if not finite(self.learner.parts):
            self.check(math.nan, at)
        if self.ranks.rank == 0:
            state = {
                "done": self.done,
                "seconds": self.elapsed(),
                "parts": self.learner.parts.state_dict(),
                "optimizer": self.learner.optimizer.state_dict(),
                "sums": self.sums,  # empty where there are several ranks: they log before they save
                "totals": self.totals,
                "count": self.count,
                "first_loss": self.first_loss,
            }
            save_newest(self.folder, self.done, state)
        self.saved = time.monotonic()

    def restore(self) -> None:
        if self.ranks.rank == 0:
            clear_unfinished(self.folder)
        state = load_newest(self.folder, self.ranks.device)
        if state is not None:
            try:
                self.take(state)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                said = " ".join(str(error).split())[:300]
                raise InputError(
                    f"the checkpoints in {self.folder} are another run's, or another version's ({said}): "
                    "delete them to start over"
                ) from error
        self.ranks.same(self.learner.parts.state_dict().values())
        self.metrics.forget_after(self.done)

    def take(self, state: dict[str, Any]) -> None:
        """Be where a checkpoint was written."""
        self.done, self.seconds = state["done"], state["seconds"]
        self.learner.parts.load_state_dict(state["parts"])
        restore_optimizer(self.learner.optimizer, state["optimizer"])
        self.sums, self.totals, self.count = state["sums"], state["totals"], state["count"]
        self.first_loss = state["first_loss"]


class _Flag:
    is_set = False


@contextmanager
def _asked_to_stop() -> Iterator[_Flag]:
    """SIGINT and SIGTERM set a flag; a second SIGINT interrupts at once. In a thread, nothing."""
    flag, before = _Flag(), {}

    def ask(number: int, frame: Any) -> None:
        if flag.is_set and number == signal.SIGINT:
            raise KeyboardInterrupt
        flag.is_set = True

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    except ValueError:
        pass
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _running_statistics(parts: nn.Module) -> Iterator[Tensor]:
    """What ranks do not share: each normalises by its own part of a batch."""
    for module in parts.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            yield from module.buffers()


def _pieces(batch: Any, pieces: int) -> list[Any]:
    if pieces == 1:
        return [batch]
    return [type(batch)(*parts) for parts in zip(*(torch.tensor_split(x, pieces) for x in batch), strict=True)]
