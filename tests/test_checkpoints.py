"""Checkpoints: what goes in comes out; what is damaged is passed over; nothing is ever executed."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from mlcpc import checkpoints
from mlcpc.config import InputError

TREE = {
    "parts": {"w": torch.randn(3, 2), "half": torch.ones(2, dtype=torch.bfloat16), "n": torch.tensor(7)},
    "state": {0: {"momentum": torch.zeros(0, 4)}, 1: None},
    "list": [1, 2.5, "three", True, (4, torch.tensor([True]))],
    "nan": float("inf"),
}


def equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return a == b and type(a) is type(b)


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    tree = {**TREE, "views": [shared[:3], shared[:3], shared.view(2, 3).T]}
    checkpoints.save(tmp_path / "x", tree)
    assert equal(checkpoints.load(tmp_path / "x"), tree)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "pickle"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, damage: str) -> None:
    for step in (1, 2, 3):
        checkpoints.save_newest(tmp_path, step, {"step": step, "w": torch.full((1000,), float(step))})
    newest = tmp_path / "checkpoint-000000003.safetensors"
    assert sorted(path.name for path in tmp_path.iterdir()) == [newest.name.replace("3.", "2."), newest.name]
    content = bytearray(newest.read_bytes())
    content[-2000] ^= 1
    newest.write_bytes(
        {"truncated": content[:-9], "flipped": content, "empty": b"", "pickle": pickle.dumps({})}[damage]
    )
    with pytest.raises(InputError, match="damaged"):
        checkpoints.load(newest)
    with pytest.warns(RuntimeWarning, match="Going back"):
        assert checkpoints.load_newest(tmp_path)["step"] == 2


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert checkpoints.load_newest(tmp_path) is None


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="tensors and plain values"):
        checkpoints.save(tmp_path / "x", {"f": print})
    assert list(tmp_path.iterdir()) == []


def test_an_optimizer_goes_on_as_it_was_in_its_memory_format(tmp_path: Path) -> None:
    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        return net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def steps(net: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for i in range(first, last):
            optimizer.zero_grad()
            x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(i))
            net(x.to(memory_format=torch.channels_last)).square().sum().backward()
            optimizer.step()

    net, optimizer = fresh()
    steps(net, optimizer, 0, 2)
    checkpoints.save(tmp_path / "x", {"net": net.state_dict(), "optimizer": optimizer.state_dict()})
    steps(net, optimizer, 2, 4)
    other, its = fresh()
    state = checkpoints.load(tmp_path / "x")
    other.load_state_dict(state["net"])
    checkpoints.restore_optimizer(its, state["optimizer"])
    assert its.state[other.weight]["momentum_buffer"].is_contiguous(memory_format=torch.channels_last)
    steps(other, its, 2, 4)
    assert torch.equal(net.weight, other.weight)


def test_finite() -> None:
    net = nn.BatchNorm1d(2)
    assert checkpoints.finite(net)
    net.running_var[0] = float("inf")
    assert not checkpoints.finite(net)
