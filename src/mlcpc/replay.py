"""A network's kernels recorded once and replayed as one, where launching them takes longer than running them.

A ResNet-20 on 64 small images is some 300 kernels of a few microseconds; a GPU then waits for Python. A recording has
one launch. It is made at the first batch, of that batch's shape; other shapes, evaluation and CPUs run as written.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Replay"]

Outputs = tuple[Tensor, ...]


class Replay:
    """`run(images)` of a network in training, or of one that is frozen; the same values either way.

    net   whose parameters and statistics `run` uses; they are read and written in place, never replaced

    >>> layer = nn.Linear(2, 2)
    >>> torch.equal(Replay(layer, lambda x: (layer(x),))(torch.ones(1, 2))[0], layer(torch.ones(1, 2)))
    True
    """

    def __init__(self, net: nn.Module, run: Callable[[Tensor], Outputs]) -> None:
        self.net, self.run = net, run
        self.first = next((p for p in net.parameters() if p.requires_grad), None)
        self.learns = self.first is not None
        self.shape: torch.Size | None = None
        self.replay: Callable[[Tensor], Outputs] | None = None

    def __call__(self, images: Tensor) -> Outputs:
        if images.device.type != "cuda" or self.learns != (self.net.training and torch.is_grad_enabled()):
            return self.run(images)
        if self.shape is None:
            self.shape = images.shape
            self.record(images)
        # a replay would overwrite the gradients of a batch's earlier pieces, which lie where it puts its own
        if (
            self.replay is None
            or images.shape != self.shape
            or (self.first is not None and self.first.grad is not None)
        ):
            return self.run(images)
        return self.replay(images)

    def record(self, images: Tensor) -> None:
        """Try it, and compare once with the way as written; a recording that differs is not used."""
        kept = [buffer.clone() for buffer in self.net.buffers()]  # trial runs move the statistics of normalisation
        kind, products = "cuda", torch.get_autocast_dtype("cuda")
        on = torch.is_autocast_enabled(kind)
        try:
            with torch.autocast(kind, products, enabled=on, cache_enabled=False):
                replay = self._learning(images) if self.learns else self._frozen(images)
                wanted, found = self.run(images), replay(images)
            if all(_close(a, b) for a, b in zip(wanted, found, strict=True)):
                self.replay = replay
            else:
                warnings.warn("a recording of the network differs from the network, so it is not used", stacklevel=4)
        except RuntimeError as error:
            words = " ".join(str(error).split())[:200]
            warnings.warn(f"the network cannot be recorded ({words}): it runs kernel by kernel", stacklevel=4)
        with torch.no_grad():
            for buffer, value in zip(self.net.buffers(), kept, strict=True):
                buffer.copy_(value)

    def _learning(self, images: Tensor) -> Callable[[Tensor], Outputs]:
        """Forward and backward passes."""
        quiet = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
        if quiet is not None:
            quiet(False)  # sums of gradients wait for the stream that recorded them, as they must
        replay: Any = torch.cuda.make_graphed_callables(
            _Module(self.net, self.run),
            (images.clone(),),
            allow_unused_input=True,  # a classifier behind features
        )
        return replay  # type: ignore[no-any-return]

    @torch.no_grad()
    def _frozen(self, images: Tensor) -> Callable[[Tensor], Outputs]:
        """The forward pass. What it returns is overwritten by the next call."""
        given = images.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries choose their kernels and take their memory
                self.run(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.run(given)

        def replay(images: Tensor) -> Outputs:
            given.copy_(images)
            graph.replay()
            return out

        return replay


class _Module(nn.Module):
    """`run` as a module whose parameters are the network's."""

    def __init__(self, net: nn.Module, run: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.net, self.run = net, run

    def forward(self, images: Tensor) -> Any:
        return self.run(images)


def _close(a: Tensor, b: Tensor) -> bool:
    """Up to the order of sums."""
    a, b = a.detach().float(), b.detach().float()
    return bool((a - b).norm() <= 1e-2 * a.norm() + 1e-6)
