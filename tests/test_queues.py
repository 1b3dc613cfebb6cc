"""Queues that wrap without dropping, banks that move, and both in checkpoints."""

import pytest
import torch

from mlcpc import Queue, contrastive_loss
from mlcpc.queues import MemoryBank


@pytest.mark.parametrize("sizes", [[3, 3, 3], [5, 5], [7], [12], [1] * 11, [4, 9, 2], [0, 3, 0]])
def test_the_queue_holds_the_latest_keys_whatever_the_batch(sizes: list[int]) -> None:
    queue, seen = Queue(5, 2, with_ids=True), []
    for size in sizes:
        batch = [len(seen) + i for i in range(size)]
        seen += batch
        numbers = torch.tensor(batch, dtype=torch.float32)
        queue.update(torch.stack([numbers, -numbers], 1) if size else torch.zeros(0, 2), numbers.long())
    latest = seen[-5:]
    assert len(queue) == len(latest)
    assert sorted(queue.ids().tolist()) == sorted(latest)
    torch.testing.assert_close(queue.keys()[:, 0].long(), queue.ids())


def test_an_empty_queue_says_so() -> None:
    with pytest.raises(ValueError, match=r"empty: call update\(keys\) first"):
        Queue(5, 2).keys()


def test_random_start_is_full_of_unit_vectors() -> None:
    torch.testing.assert_close(Queue(6, 3, random_start=True).keys().norm(dim=1), torch.ones(6))


def test_state_goes_through_a_checkpoint(tmp_path) -> None:
    model = torch.nn.ModuleDict({"queue": Queue(5, 2, with_ids=True), "bank": MemoryBank(4, 2)})
    model["queue"].update(torch.randn(3, 2), torch.arange(3))
    model["bank"].update(torch.tensor([1]), torch.randn(1, 2))
    torch.save(model.state_dict(), tmp_path / "a.pt")
    again = torch.nn.ModuleDict({"queue": Queue(5, 2, with_ids=True), "bank": MemoryBank(4, 2)})
    again.load_state_dict(torch.load(tmp_path / "a.pt", weights_only=True))
    more = torch.randn(4, 2)
    for each in (model, again):
        each["queue"].update(more, torch.arange(4) + 3)
    torch.testing.assert_close(dict(again.state_dict()), dict(model.state_dict()), rtol=0, atol=0)


def test_a_queue_may_move_on_before_the_backward_pass() -> None:
    queue, queries = Queue(6, 4), torch.randn(3, 4, requires_grad=True)
    queue.update(torch.randn(6, 4))
    before = contrastive_loss(queries, queries.detach(), queue.keys().clone())
    expected = torch.autograd.grad(before, queries)
    value = contrastive_loss(queries, queries.detach(), queue.keys())
    queue.update(torch.randn(5, 4))
    torch.testing.assert_close(torch.autograd.grad(value, queries), expected)


def test_the_bank_moves_rows_by_its_momentum() -> None:
    bank = MemoryBank(5, 3, momentum=0.5)
    before, new = bank.vectors.clone(), torch.randn(2, 3)
    bank.update(torch.tensor([4, 0]), new)
    mixed = 0.5 * before[[4, 0]] + 0.5 * new / new.norm(dim=1, keepdim=True)
    torch.testing.assert_close(bank.vectors[[4, 0]], mixed / mixed.norm(dim=1, keepdim=True))
    torch.testing.assert_close(bank.vectors[1:4], before[1:4], rtol=0, atol=0)


def test_the_last_of_repeated_indices_counts() -> None:
    bank, new = MemoryBank(5, 3, momentum=0.0), torch.randn(3, 3)
    bank.update(torch.tensor([2, 2, 2]), new)
    torch.testing.assert_close(bank.vectors[2], new[2] / new[2].norm())


def test_banks_start_in_crds_range() -> None:
    vectors = MemoryBank(1000, 128).vectors
    edge = 1 / (128 / 3) ** 0.5
    assert vectors.abs().max() <= edge
    assert vectors.abs().max() > 0.99 * edge


BAD = {
    "length": (lambda: Queue(0, 3), "queue of 0 keys"),
    "NaN keys": (lambda: Queue(4, 3).update(torch.full((2, 3), torch.nan)), "row 0 of keys is not finite"),
    "NaN vectors": (lambda: MemoryBank(4, 3).update(torch.tensor([1]), torch.full((1, 3), torch.nan)), "row 0 of vec"),
    "keys": (lambda: Queue(4, 3).update(torch.zeros(2, 2)), r"\(2, 2\).*\(n, 3\)"),
    "missing ids": (lambda: Queue(4, 3, with_ids=True).update(torch.zeros(2, 3)), "one id for each of the 2"),
    "needless ids": (lambda: Queue(4, 3).update(torch.zeros(2, 3), torch.zeros(2).long()), "no ids"),
    "no ids": (lambda: Queue(4, 3).ids(), "with_ids=True"),
    "momentum": (lambda: MemoryBank(4, 3, momentum=1.0), "momentum is 1.0"),
    "bank size": (lambda: MemoryBank(4, 0), "bank of 4 vectors"),
    "bank index": (lambda: MemoryBank(4, 3).update(torch.tensor([4]), torch.zeros(1, 3)), "rows 0 to 3"),
    "bank shapes": (lambda: MemoryBank(4, 3).update(torch.tensor([1, 2]), torch.zeros(1, 3)), r"\(2,\).*\(1, 3\)"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
