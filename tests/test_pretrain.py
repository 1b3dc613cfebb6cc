"""Pretraining against slow twins: MoCo step by step, two ranks against one, resumed against whole, k-NN by loops."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc import contrastive_loss, draws
from mlcpc.checkpoints import load_newest
from mlcpc.config import InputError
from mlcpc.loop import fit
from mlcpc.plan import Plan, Progress, cosine
from mlcpc.pretrain.encoder import extract, features, inspect
from mlcpc.pretrain.knn import hits, knn, neighbours, online
from mlcpc.pretrain.moco import MoCo, Settings
from mlcpc.pretrain.probe import Linear, Probe, linear_probe, summary
from mlcpc.ranks import Ranks

HERE = Path(__file__).parent
SMALL = Settings(alpha="5:0.4", temperature=0.2, queue=25, momentum=0.9, dim=6, hidden=7)
CASES = {
    "published": SMALL,
    "undivided, by steps": replace(SMALL, divide_by_alpha=False, alpha_per="step"),
    "cpc": replace(SMALL, objective="cpc", alpha="1"),
    "symmetric": replace(SMALL, symmetric=True),
    "without own keys": replace(SMALL, own_keys=False, queue=60),
    "no shuffle": replace(SMALL, shuffle=False),
    "simclr": replace(SMALL, method="simclr", alpha="2"),
}
"""what must not depend on the number of ranks"""
PLAN = Plan(epochs=4, batch=10, seed=3, precision="float64", log_every=1)
RATE = cosine(0.5)


class Batch(NamedTuple):
    images: Tensor
    labels: Tensor
    indices: Tensor


class Noisy:
    """Small images and as many views of them as asked for: the image and noise, by (key, view, image)."""

    def __init__(self, size: int = 48, views: int = 2, kind: torch.dtype = torch.float64) -> None:
        self.views, self.kind = views, kind
        self.images = torch.randn(size, 3, 4, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, order: list[Tensor], device: Any = "cpu", key: tuple[int, ...] = (0, 0)) -> Any:
        for rows in order:
            noise = [draws.uniform(rows, 48, *key, view).view(-1, 3, 4, 4) - 0.5 for view in range(self.views)]
            views = torch.stack([self.images[rows] + part for part in noise], 1).to(self.kind)
            yield Batch(views if self.views > 1 else views[:, 0], rows % 3, rows)


def encoder(norm: bool = False, kind: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Flatten(), nn.Linear(48, 16), nn.BatchNorm1d(16) if norm else nn.Tanh(), nn.Linear(16, 8)]
    return nn.Sequential(*layers).to(kind)


def learner(settings: Settings, ranks: Ranks | None = None, **more: Any) -> MoCo:
    net = more.pop("net", None) or encoder()
    return MoCo(net, next(Noisy().batches([torch.arange(2)])).images[:, 0], settings, ranks, **more)


def train(moco: MoCo, folder: Path, ranks: Ranks | None = None, data: Any = None, **plan: Any) -> list[dict[str, Any]]:
    """The lines of all steps, without their times."""
    fit(moco, data or Noisy(), replace(PLAN, **plan), RATE, folder, ranks)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def values(lines: list[dict[str, Any]]) -> Tensor:
    return torch.tensor([[line[name] for name in ("loss", "estimate", "ceiling", "alpha")] for line in lines]).double()


def published(settings: Settings) -> tuple[list[float], dict[str, Tensor]]:
    """Twenty steps of the published training loop in its own order, with the whole matrix of logits."""
    moco, data = learner(settings), Noisy()
    fast, slow = (nn.Sequential(moco.parts[f"{w}encoder"], moco.parts[f"{w}head"]) for w in ("", "key_"))
    queue, pointer = moco.queue.stored.clone(), 0
    optimizer = torch.optim.SGD(fast.parameters(), 0.5, momentum=0.9, weight_decay=settings.weight_decay)
    losses = []
    for epoch in range(PLAN.epochs):
        optimizer.param_groups[0]["lr"] = 0.25 * (1 + math.cos(math.pi * epoch / 4))
        alpha = math.exp(math.log(0.4) + math.log(12.5) * (1 - epoch / 4))
        for rows in draws.permutation(48, PLAN.seed, epoch, "order").split(10):
            images = next(data.batches([rows], key=(PLAN.seed, epoch))).images
            q = F.normalize(fast(images[:, 0]), dim=1)
            with torch.no_grad():
                for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
                    a.copy_(0.9 * a + 0.1 * b)
                k = F.normalize(slow(images[:, 1]), dim=1)
            logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.2
            beta = (26 - alpha) / 25
            logits = torch.cat([logits[:, :1] + math.log(alpha), logits[:, 1:] + math.log(beta)], 1)
            labels = torch.zeros_like(logits)
            labels[:, 0] = 1 / len(rows)
            loss = F.kl_div(logits.flatten().log_softmax(0), labels.flatten(), reduction="sum") / alpha
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for key in k:
                queue[pointer] = key
                pointer = (pointer + 1) % 25
    with torch.no_grad():  # the loop's follower has moved after the last step too
        for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
            a.copy_(0.9 * a + 0.1 * b)
    return losses, {"fast": fast[0][1].weight, "slow": slow[0][1].weight, "queue": queue}


def test_moco_is_the_published_training_step_by_step(tmp_path: Path) -> None:
    moco = learner(SMALL)
    lines = train(moco, tmp_path)
    losses, end = published(SMALL)
    got = [line["loss"] for line in lines if line["kind"] == "step"]
    assert len(losses) == 20
    torch.testing.assert_close(torch.tensor(got), torch.tensor(losses), rtol=1e-9, atol=0)
    found = {
        "fast": moco.parts["encoder"][1].weight,
        "slow": moco.parts["key_encoder"][1].weight,
        "queue": moco.queue.stored,
    }
    torch.testing.assert_close(found, end, rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case on two ranks under torchrun; batches of 9, so that ranks hold 5 and 4 samples, in the end 2 and 1."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "moco_ranks.py"), str(folder)]
    out = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert out.returncode == 0, (out.stdout + out.stderr)[-3000:]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_see_one_global_batch(case: str, two_ranks: Path, tmp_path: Path) -> None:
    alone = values(train(learner(CASES[case]), tmp_path, batch=9))
    lines = [json.loads(line) for line in (two_ranks / case / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == len(alone) == 4 * (6 + 1)
    torch.testing.assert_close(values(lines), alone, rtol=1e-8, atol=1e-10)
    ends = [load_newest(folder)["parts"] for folder in (two_ranks / case, tmp_path)]
    torch.testing.assert_close(*ends, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["moco", "simclr"])
def test_resumed_it_ends_alike_bit_for_bit(method: str, tmp_path: Path) -> None:
    settings = replace(SMALL, alpha="5:2", alpha_per="step", own_keys=False, queue=70, method=method)

    class Dying(MoCo):
        def after_step(self, batch: Batch, at: Progress) -> None:
            if at.done == 8:
                raise ZeroDivisionError
            super().after_step(batch, at)

    whole = train(learner(settings, net=encoder(norm=True)), tmp_path / "whole")
    example = Noisy().images[:2].double()
    with pytest.raises(ZeroDivisionError):
        train(Dying(encoder(norm=True), example, settings), tmp_path / "cut", checkpoint_seconds=0.0)
    assert train(learner(settings, net=encoder(norm=True), seed=9), tmp_path / "cut") == whole
    ends = [load_newest(tmp_path / name)["parts"] for name in ("whole", "cut")]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def one_step(settings: Settings, **more: Any) -> tuple[MoCo, Tensor, dict[str, Tensor], Batch]:
    moco = learner(settings, **more)
    batch = next(Noisy().batches([torch.arange(10)]))
    value, numbers = moco.loss(batch, Progress(1, 0, 4, 5))
    value.backward()
    return moco, value.detach(), numbers, batch


def gradients(moco: MoCo) -> list[Tensor]:
    return [p.grad for group in moco.optimizer.param_groups for p in group["params"]]


def test_dividing_by_alpha_scales_gradients_and_nothing_else() -> None:
    (divided, a, numbers, _), (plain, b, same, _) = (
        one_step(replace(SMALL, divide_by_alpha=on)) for on in (True, False)
    )
    alpha = numbers["alpha"].item()
    assert alpha == pytest.approx(math.exp(math.log(0.4) + math.log(12.5) * 0.75))
    torch.testing.assert_close(a * alpha, b, rtol=1e-12, atol=0)
    torch.testing.assert_close([g * alpha for g in gradients(divided)], gradients(plain), rtol=1e-11, atol=1e-15)
    torch.testing.assert_close(numbers, same)
    assert (same["ceiling"] - same["estimate"]).item() == pytest.approx(b.item())
    assert same["ceiling"].item() == pytest.approx(math.log(26 / alpha))


def test_simclr_is_the_two_view_loss() -> None:
    moco, value, numbers, batch = one_step(replace(SMALL, method="simclr", divide_by_alpha=False))
    wanted = learner(replace(SMALL, method="simclr")).parts
    z = [wanted["head"](wanted["encoder"](batch.images[:, view])) for view in (0, 1)]
    alpha = numbers["alpha"].item()
    loss = contrastive_loss(*z, alpha=alpha, temperature=0.2, layout="two-view", engine="dense", details=True)
    loss.loss.backward()
    torch.testing.assert_close(value, loss.loss.detach(), rtol=1e-10, atol=0)
    torch.testing.assert_close(
        gradients(moco), [p.grad for name in ("encoder", "head") for p in wanted[name].parameters()]
    )
    assert numbers["ceiling"].item() == pytest.approx(loss.ceiling)
    assert "queue" not in moco.parts


def test_symmetric_is_both_ways_and_queues_both_keys() -> None:
    moco, value, _, batch = one_step(replace(SMALL, symmetric=True))
    single, there, _, _ = one_step(SMALL)
    back, _ = single.loss(batch._replace(images=batch.images.flip(1)), Progress(1, 0, 4, 5))
    torch.testing.assert_close(value, (there + back.detach()) / 2)
    moco.after_step(batch, Progress(1, 0, 4, 5))
    torch.testing.assert_close(moco.queue.stored[:20], torch.cat([keys for keys, _ in single.fresh]))


def test_an_images_own_old_keys_can_be_left_out() -> None:
    moco = learner(replace(SMALL, own_keys=False, divide_by_alpha=False, alpha="0.7"))
    first, second = Noisy().batches([torch.arange(8), torch.tensor([3, 20, 5, 21, 22])])
    at = Progress(0, 0, 4, 5)
    for batch in (first, first._replace(indices=first.indices % 4)):  # rows 0 … 3 stand three times in the queue
        moco.loss(batch, at)
        moco.after_step(batch, at)
    value, numbers = moco.loss(second, at)
    embed = [nn.Sequential(moco.parts[f"{w}encoder"], moco.parts[f"{w}head"]) for w in ("", "key_")]
    q, k = (net(second.images[:, view]) for view, net in enumerate(embed))
    ids = {"ids": second.indices, "negative_ids": moco.queue.ids()}
    wanted = contrastive_loss(q, k, moco.queue.keys(), alpha=0.7, temperature=0.2, engine="dense", details=True, **ids)
    torch.testing.assert_close(value, wanted.loss)
    assert numbers["ceiling"].item() == pytest.approx(wanted.ceiling)
    assert wanted.ceiling < math.log(26 / 0.7)  # something was left out


def test_a_low_temperature_does_not_overflow() -> None:
    """At τ = 0.004 scores reach 250 nats, and exp(250) is no float32."""
    settings = replace(SMALL, temperature=0.004, alpha="0.7", divide_by_alpha=False)
    moco = MoCo(encoder(kind=torch.float32), Noisy().images[:2], settings)
    batch = next(Noisy(kind=torch.float32).batches([torch.arange(10)]))
    moco.loss(batch, Progress(0, 0, 4, 5))
    moco.after_step(batch, Progress(0, 0, 4, 5))  # now the queue holds the batch's own keys: scores near 1/τ
    embed = [nn.Sequential(moco.parts[f"{w}encoder"], moco.parts[f"{w}head"]) for w in ("", "key_")]
    q, k = (net(batch.images[:, view]).double() for view, net in enumerate(embed))
    wanted = contrastive_loss(q, k, moco.queue.keys(), alpha=0.7, temperature=0.004, engine="dense")
    value, _ = moco.loss(batch, Progress(0, 0, 4, 5))
    torch.testing.assert_close(value, wanted.float(), rtol=1e-4, atol=1e-4)


def test_a_classifier_behind_the_features_is_left_alone(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.fc = encoder(), nn.Linear(8, 10, dtype=torch.float64)

        def features(self, x: Tensor) -> Tensor:
            return self.body(x)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.features(x))

    net = Net()
    before, body = net.fc.weight.clone(), net.body[1].weight.clone()
    moco = learner(SMALL, net=net)
    train(moco, tmp_path, epochs=1)
    assert torch.equal(net.fc.weight, before)
    learnt = {id(p) for group in moco.optimizer.param_groups for p in group["params"]}
    assert id(net.fc.weight) not in learnt  # several ranks give it a gradient of zero: weight decay would move it
    assert not torch.equal(net.body[1].weight, body)


def test_pieces_of_a_batch_follow_once_and_queue_all_keys(tmp_path: Path) -> None:
    moco = learner(replace(SMALL, momentum=0.0))
    train(moco, tmp_path, epochs=1, accumulate=2)
    assert moco.queue.state.tolist() == [48 % 25, 25]
    torch.testing.assert_close(moco.parts["key_encoder"][1].weight, moco.parts["encoder"][1].weight)


def test_half_precision_stays_near(tmp_path: Path) -> None:
    found = []
    for precision in ("float32", "bfloat16"):
        moco = MoCo(encoder(kind=torch.float32), Noisy().images[:2], SMALL)
        data = Noisy(kind=torch.float32)
        found.append(values(train(moco, tmp_path / precision, data=data, precision=precision, epochs=1)))
        assert moco.queue.stored.dtype == torch.float32
    torch.testing.assert_close(found[0][:, 1:], found[1][:, 1:], rtol=0, atol=0.05)


def test_evaluation_is_reported_every_few_epochs(tmp_path: Path) -> None:
    data = Noisy(views=1)
    whole = list(torch.arange(48).split(20))
    moco = learner(SMALL, evaluation=online(lambda: data.batches(whole), lambda: data.batches(whole)))
    lines = train(moco, tmp_path, evaluate_every=2)
    assert [("knn_top1" in line) for line in lines if line["kind"] == "epoch"] == [False, True, False, True]
    assert 0 <= lines[-1]["knn_top1"] <= lines[-1]["knn_top5"] == 1


# Nearest neighbours and linear evaluation.


def slow_knn(x: Tensor, labels: Tensor, y: Tensor, wanted: Tensor, k: int, temperature: float, among: int) -> float:
    right = 0
    for row, label in zip(y.tolist(), wanted.tolist(), strict=True):
        cosines = []
        for other, theirs in zip(x.tolist(), labels.tolist(), strict=True):
            dot = sum(a * b for a, b in zip(row, other, strict=True))
            cosines.append((dot / math.hypot(*row) / math.hypot(*other), theirs))
        votes: Counter[int] = Counter()
        for cosine_, theirs in sorted(cosines, reverse=True)[:k]:
            votes[theirs] += math.exp(cosine_ / temperature)
        right += label in [found for found, _ in votes.most_common(among)]
    return right / len(y)


@pytest.mark.parametrize("k", [9, 200])
def test_knn_is_the_slow_vote(k: int) -> None:
    x, y = torch.randn(140, 4, dtype=torch.float64), torch.randn(60, 4, dtype=torch.float64)
    centres = torch.randn(7, 4, dtype=torch.float64)
    labels, wanted = ((z @ centres.T).argmax(1) for z in (x, y))
    wanted[0] = labels.max()
    found = knn(x, labels, y, wanted, k=k)
    classes = int(labels.max()) + 1
    used = min(k, 140 // classes)
    for among in (1, 5):
        assert found[f"top{among}"] == pytest.approx(slow_knn(x, labels, y, wanted, used, 0.07, among))
    assert 1 / 7 < found["top1"] < 1


def test_neighbours_in_chunks_are_the_sorted_cosines() -> None:
    y, bank = torch.randn(37, 5), torch.randn(2**20, 5)  # chunks of 16 queries
    values_, rows = neighbours(y, bank, 3)
    wanted, indices = F.cosine_similarity(y[20:23, None], bank[None], dim=2).sort(1, descending=True)
    torch.testing.assert_close(values_[20:23], wanted[:, :3])
    assert torch.equal(rows[20:23], indices[:, :3])


def test_hits_count_ties_and_nan_as_misses() -> None:
    scores = torch.tensor([[0.0, 0.0, -1.0], [1.0, 0.0, -1.0], [math.nan, 0.0, 0.0], [math.nan, 1.0, 0.0]])
    assert hits(scores, torch.tensor([0, 0, 0, 1]), 1) == 0.25
    assert hits(scores, torch.tensor([0, 0, 0, 1]), 2) == 0.75


class Points:
    """Features as if they were images."""

    def __init__(self, x: Tensor, labels: Tensor) -> None:
        self.x, self.labels = x, labels

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, order: list[Tensor], device: Any, key: tuple[int, ...] = (0, 0)) -> Any:
        for rows in order:
            yield Batch(self.x[rows], self.labels[rows], rows)


def points(size: int) -> tuple[Tensor, Tensor]:
    labels = torch.arange(size) % 4
    centres = torch.randn(4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return centres[labels] + 0.2 * torch.randn(size, 6, dtype=torch.float64), labels


def test_the_probe_separates_and_is_sgd_on_a_linear_layer(tmp_path: Path) -> None:
    (x, labels), (y, wanted) = points(320), points(80)
    config = Linear(rate=0.5, epochs=10, batch=64)
    fast = linear_probe(x, labels, y, wanted, config)
    assert fast["top1"] == fast["best_top1"] == fast["top5"] == 1
    assert fast["best_epoch"] <= 3
    assert len(fast["curve"]) == 10
    slow = Probe(nn.Flatten(), 4, y, wanted, config)
    rows = fit(slow, Points(x, labels), replace(config.plan, precision="float64"), config.schedule, tmp_path)
    torch.testing.assert_close(
        torch.tensor([row["loss"] for row in summary(rows)["curve"]]),
        torch.tensor([row["loss"] for row in fast["curve"]]),
        rtol=1e-9,
        atol=0,
    )
    assert {**summary(rows), "curve": 0} == {**fast, "curve": 0}


def test_the_probe_reports_its_last_epoch_and_its_best() -> None:
    (x, labels), (y, wanted) = points(100), points(50)
    found = linear_probe(x, labels, y, torch.where(wanted == 3, 2, wanted), Linear(rate=0.02, epochs=12))
    curve = [row["top1"] for row in found["curve"]]
    assert found["best_top1"] == max(curve) == curve[found["best_epoch"] - 1]
    assert found["top1"] == curve[-1]


def test_the_published_rates_of_the_probe() -> None:
    rates = [Linear().schedule(Progress(epoch, 0, 100, 196)) for epoch in (0, 59, 60, 79, 80, 99)]
    assert rates == pytest.approx([3, 3, 0.3, 0.3, 0.03, 0.03])


def test_a_probe_with_augmentation_leaves_the_encoder_alone(tmp_path: Path) -> None:
    net, data = encoder(norm=True), Noisy(views=1)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    x, labels = extract(net, data.batches(list(torch.arange(48).split(20))))
    config = Linear(rate=0.1, epochs=3, batch=16)
    net.train()  # as pretraining left it
    rows = fit(Probe(net, 3, x, labels, config), data, config.plan, config.schedule, tmp_path)
    torch.testing.assert_close(dict(net.state_dict()), before, rtol=0, atol=0)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert set(load_newest(tmp_path)["parts"]) == {"weight", "bias"}


# What a person may give.


def test_features_by_method_by_call_and_past_a_stack_of_layers() -> None:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Conv2d(3, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.features(x).mean((2, 3))

    images = torch.randn(5, 3, 4, 4)
    assert features(Stack(), images).shape == (5, 4)
    assert inspect(Stack().to(memory_format=torch.channels_last), images)[0] == 4
    with pytest.raises(InputError, match=r"gives shape \(5, 4, 4, 4\) .* must give \(n, d\)"):
        features(nn.Conv2d(3, 4, 1), images)


BAD = {
    "method": (lambda: Settings(method="byol"), "write one of moco, simclr"),
    "objective": (lambda: Settings(objective="smile"), "'smile'"),
    "alpha_per": (lambda: Settings(alpha_per="hour"), "write one of epoch, step"),
    "temperature": (lambda: Settings(temperature=0.0), "temperature is 0.0"),
    "momentum": (lambda: Settings(momentum=1.5), "momentum is 1.5"),
    "symmetric simclr": (lambda: Settings(method="simclr", symmetric=True), "leave it out"),
    "frozen": (lambda: learner(SMALL, net=encoder().requires_grad_(False)), "no parameter to learn"),
    "no vectors": (lambda: learner(SMALL, net=nn.Conv2d(3, 4, 1).double()), r"must give \(n, d\)"),
    "one view": (
        lambda: learner(SMALL).loss(next(Noisy(views=1).batches([torch.arange(4)])), Progress(0, 0, 1, 1)),
        r"two views of each: write Loader\(..., views=2\)",
    ),
    "k": (lambda: neighbours(torch.zeros(2, 3), torch.zeros(4, 3), 5), "k is 5 but must be 1 to 4"),
    "columns": (lambda: neighbours(torch.zeros(2, 3), torch.zeros(4, 2), 1), r"\(2, 3\).*\(4, 2\)"),
    "labels": (
        lambda: linear_probe(torch.zeros(3, 2), torch.zeros(2).long(), torch.zeros(3, 2), torch.zeros(3).long()),
        r"train features are \(3, 2\) and labels \(2,\)",
    ),
    "no batch": (lambda: extract(nn.Flatten(), []), "no batch"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
