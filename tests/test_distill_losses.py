"""Distillation's losses against per-sample loops in exp space, the published constants, and the negatives' law."""

import csv
import math
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from mlcpc import models
from mlcpc.checkpoints import load, save
from mlcpc.config import InputError
from mlcpc.distill.losses import kd_loss
from mlcpc.distill.memory import OBJECTIVES, Contrast
from mlcpc.distill.negatives import OtherClasses
from mlcpc.distill.pairs import PAIRS

TAU, ALPHA = 0.3, 0.4
EVEN = torch.arange(40) % 4
UNEVEN = torch.tensor([0] * 17 + [1] * 9 + [2] * 11 + [3] * 3)[torch.randperm(40, generator=torch.Generator())]
ROWS = torch.tensor([3, 31, 0, 17, 8])
KEY = (5, 2)


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def contrast_of(labels: Tensor, objective: str = "ml_cpc", **more: Any) -> Contrast:
    torch.manual_seed(1)
    settings = {"alpha": ALPHA, "negatives": 12, "dim": 6, "temperature": TAU} | more
    return Contrast(7, 9, labels, objective, **settings).double()


def batch(rows: Tensor = ROWS) -> tuple[Tensor, Tensor]:
    return drawn(40, 7, seed=1)[rows].requires_grad_(), drawn(40, 9, seed=2)[rows]


# ---- twins: vectors gathered for each sample, exponentials, no log space


def exp_scores(contrast: Contrast, features: tuple[Tensor, Tensor], rows: Tensor) -> list[list[tuple[Tensor, Tensor]]]:
    """Per direction and sample: exp(score) of its positives and of its negatives."""
    labels, found = contrast.others.labels, []
    nets = (contrast.project_student, contrast.project_teacher)
    banks = (contrast.teacher_bank.vectors, contrast.student_bank.vectors)
    for net, x, bank in zip(nets, features, banks, strict=True):
        direction = []
        for j, i in enumerate(rows.tolist()):
            v = x[j] @ net.weight.T + net.bias
            v = v / v.pow(2).sum().sqrt()
            if contrast.k is None:
                negatives = [r for r in range(len(labels)) if labels[r] != labels[i]]
            else:
                negatives = contrast.others.draw(torch.tensor([i]), contrast.k, *KEY)[0].tolist()
            positives = [r for r in range(len(labels)) if labels[r] == labels[i]] if contrast.same_class else [i]
            e = [
                torch.stack([(bank[r] @ v / contrast.temperature).exp() for r in part])
                for part in (positives, negatives)
            ]
            direction.append((e[0], e[1]))
        found.append(direction)
    return found


def twin(contrast: Contrast, features: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
    size, total = len(contrast.others), torch.zeros((), dtype=torch.float64)
    for pairs in exp_scores(contrast, features, rows):
        each = [(p, neg) for pos, neg in pairs for p in pos]  # one row for each positive pair
        if contrast.objective == "crd":
            own = [(next(iter(p)) if not contrast.same_class else None, neg) for p, neg in pairs]
            own = own if not contrast.same_class else own_entries(contrast, pairs, rows)
            z = torch.cat([torch.cat([p[None], neg]) for p, neg in own]).mean().detach() * size
            terms = []
            for p, neg in each:
                noise = len(neg) / size
                terms.append(-(p / z / (p / z + noise)).log() - (noise / (neg / z + noise)).log().sum())
        elif contrast.objective == "cpc":
            terms = []
            for p, neg in each:
                m = len(neg) + 1
                share = p / (ALPHA * p + (m - ALPHA) / (m - 1) * neg.sum())
                terms.append(math.log(m / ALPHA) - (m * share).log())
        else:
            negatives, n = torch.cat([neg for _, neg in pairs]), len(each)
            m = 1 + len(negatives) / n
            every = ALPHA * sum(p for p, _ in each) + (m - ALPHA) / (m - 1) * negatives.sum()
            terms = [math.log(m / ALPHA) - (m * n * p / every).log() for p, _ in each]
        total = total + torch.stack(terms).mean()
    return total


def own_entries(contrast: Contrast, pairs: Any, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Of each sample's positives, which are its class, its own."""
    labels, out = contrast.others.labels, []
    for (pos, neg), i in zip(pairs, rows.tolist(), strict=True):
        members = [r for r in range(len(labels)) if labels[r] == labels[i]]
        out.append((pos[members.index(i)], neg))
    return out


@pytest.mark.parametrize("same_class", [False, True])
@pytest.mark.parametrize("negatives", [12, "all"])
@pytest.mark.parametrize("labels", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_value_and_gradients_are_those_of_per_sample_gathers(
    objective: str, labels: Tensor, negatives: Any, same_class: bool
) -> None:
    contrast = contrast_of(labels, objective, negatives=negatives, same_class=same_class)
    student, teacher = batch()
    leaves = [student, *contrast.parameters()]
    loss, numbers = contrast(student, teacher, ROWS, KEY)
    wanted = twin(contrast, (student, teacher), ROWS)
    torch.testing.assert_close(loss, wanted, rtol=1e-9, atol=1e-9)
    assert loss > 0
    torch.testing.assert_close(numbers["ceiling"] - numbers["estimate"], wanted.detach() / 2, rtol=1e-9, atol=1e-9)
    for ours, theirs in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(wanted, leaves), strict=True):
        assert theirs.abs().max() > 1e-6
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_smaller_last_batch_has_its_own_n() -> None:
    contrast = contrast_of(EVEN)
    for rows in (ROWS, ROWS[:2]):
        student, teacher = batch(rows)
        torch.testing.assert_close(contrast(student, teacher, rows, KEY)[0], twin(contrast, (student, teacher), rows))


# ---- the published losses, which leave out constants


def published(contrast: Contrast, features: tuple[Tensor, Tensor], rows: Tensor, eps: float) -> Tensor:
    """As the published code computes them: P = exp(score)/Z, positives in column 0."""
    size, total = len(contrast.others), torch.zeros((), dtype=torch.float64)
    for pairs in exp_scores(contrast, features, rows):
        x = torch.stack([torch.cat([pos, neg]) for pos, neg in pairs])
        x = x / (x.mean() * size)
        pos, neg, k = x[:, 0], x[:, 1:], x.shape[1] - 1
        beta = (k + 1 - ALPHA) / k
        if contrast.objective == "crd":
            noise = k / size
            terms = -(pos / (pos + noise + eps)).log() - (noise / (neg + noise + eps)).log().sum(1)
        elif contrast.objective == "cpc":
            terms = -pos.log() + ((ALPHA * pos + beta * neg.sum(1)) / (k + 1)).log()
        else:
            terms = -pos.log() + (ALPHA * pos.mean() + beta * neg.mean() * k).log()
        total = total + terms.mean()
    return total


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_published_values_differ_by_known_constants(objective: str) -> None:
    contrast = contrast_of(UNEVEN, objective)
    features, k = batch(), 12
    ours = contrast(*features, ROWS, KEY)[0]
    theirs = published(contrast, features, ROWS, eps=0.0)
    constant = {"crd": 0.0, "cpc": -2 * math.log((k + 1) / ALPHA), "ml_cpc": 2 * math.log(ALPHA)}[objective]
    torch.testing.assert_close(theirs, ours + constant, rtol=1e-9, atol=1e-9)
    if objective == "ml_cpc":  # log m − J, a direction
        j = numbers_of(contrast)["estimate"]
        torch.testing.assert_close(theirs, 2 * (math.log(k + 1) - j), rtol=1e-9, atol=1e-9)
    if objective == "cpc":  # −L
        torch.testing.assert_close(theirs, -2 * numbers_of(contrast)["estimate"], rtol=1e-9, atol=1e-9)
    if objective == "crd":
        extra = published(contrast, features, ROWS, eps=1e-7) - ours
        assert 0 < extra < 2 * 1e-7 * 40 * (k + 1) / k


def numbers_of(contrast: Contrast) -> dict[str, Tensor]:
    numbers: dict[str, Tensor] = contrast(*batch(), ROWS, KEY)[1]
    return numbers


def test_the_normalisers_are_set_once_one_a_direction_and_go_through_a_checkpoint(tmp_path: Path) -> None:
    contrast, again = contrast_of(EVEN, "crd"), contrast_of(EVEN, "crd")
    assert not contrast.has_z
    first, other = batch(), batch(ROWS + 1)
    contrast(*first, ROWS, KEY)
    kept = contrast.log_z.clone()
    wanted = [
        torch.cat([torch.cat(pair) for pair in pairs]).mean().log() for pairs in exp_scores(contrast, first, ROWS)
    ]
    torch.testing.assert_close(kept, torch.stack(wanted) + math.log(40))
    assert kept[0] != kept[1]
    loss = contrast(*other, ROWS + 1, KEY)[0]
    torch.testing.assert_close(contrast.log_z, kept, rtol=0, atol=0)
    save(tmp_path / "a", contrast.state_dict())
    again.load_state_dict(load(tmp_path / "a"))
    torch.testing.assert_close(again(*other, ROWS + 1, KEY)[0], loss, rtol=0, atol=0)
    again.load_state_dict(contrast_of(EVEN, "crd").state_dict())  # back to before the first batch
    again(*other, ROWS + 1, KEY)
    assert not torch.equal(again.log_z, kept)


# ---- banks


def test_banks_move_after_the_step_and_only_in_training() -> None:
    contrast = contrast_of(EVEN)
    start = {side: getattr(contrast, side).vectors.clone() for side in ("student_bank", "teacher_bank")}
    student, teacher = batch()
    loss, _ = contrast(student, teacher, ROWS, KEY)
    for side, before in start.items():
        assert torch.equal(getattr(contrast, side).vectors, before)
    loss.backward()
    contrast.update()
    for side, net, x in (
        ("student_bank", contrast.project_student, student),
        ("teacher_bank", contrast.project_teacher, teacher),
    ):
        new = net(x)
        moved = 0.5 * start[side][ROWS] + 0.5 * new / new.norm(dim=1, keepdim=True)
        wanted = start[side].clone()
        wanted[ROWS] = moved / moved.norm(dim=1, keepdim=True)
        torch.testing.assert_close(getattr(contrast, side).vectors, wanted.detach())
    before = contrast.student_bank.vectors.clone()
    contrast.eval()(student, teacher, ROWS, KEY)
    contrast.update()
    assert torch.equal(contrast.student_bank.vectors, before)


def test_pieces_of_a_batch_move_the_banks_as_the_whole() -> None:
    whole, pieces = contrast_of(EVEN, "cpc"), contrast_of(EVEN, "cpc")
    student, teacher = batch()
    whole(student, teacher, ROWS, KEY)
    for part in (slice(0, 2), slice(2, 5)):
        pieces(student[part], teacher[part], ROWS[part], KEY)
    whole.update()
    pieces.update()
    torch.testing.assert_close(whole.state_dict(), pieces.state_dict())


def test_banks_start_uniform_as_published_and_scores_stay_below_the_bound() -> None:
    bank = Contrast(4, 4, torch.arange(3000) % 3, negatives=5).teacher_bank.vectors
    edge = 1 / math.sqrt(128 / 3)
    assert bank.abs().max() <= edge
    assert bank.var().item() == pytest.approx(edge**2 / 3, rel=0.02)
    assert bank.norm(dim=1).max() <= math.sqrt(3)


def test_alpha_follows_its_schedule() -> None:
    features = batch()
    by_schedule, fixed = contrast_of(EVEN, alpha="1.6:0.1"), contrast_of(EVEN, alpha=ALPHA)
    loss, numbers = by_schedule(*features, ROWS, KEY, progress=0.5)
    assert numbers["alpha"].item() == pytest.approx(ALPHA)
    torch.testing.assert_close(loss, fixed(*features, ROWS, KEY)[0])


# ---- precision


@pytest.mark.parametrize("negatives", [400, "all"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_low_precision_stays_close(objective: str, negatives: Any) -> None:
    torch.manual_seed(3)
    contrast = Contrast(32, 48, torch.arange(1000) % 10, objective, 0.05, negatives, dim=32)
    student, teacher, rows = torch.randn(64, 32), torch.randn(64, 48), torch.arange(64)
    exact, numbers = contrast(student, teacher, rows, KEY)
    wanted = torch.autograd.grad(exact, contrast.project_student.weight)[0]
    for dtype, tolerance in ((torch.bfloat16, 0.03), (torch.float16, 0.01)):
        with torch.autocast("cpu", dtype):
            loss, found = contrast(student, teacher, rows, KEY)
        (gradient,) = torch.autograd.grad(loss, contrast.project_student.weight)
        assert loss.dtype == found["estimate"].dtype == torch.float32
        assert loss.item() == pytest.approx(exact.item(), rel=tolerance)
        assert (gradient - wanted).norm() < 4 * tolerance * wanted.norm()
    assert all(isinstance(number, Tensor) for number in numbers.values())


@pytest.mark.parametrize("same_class", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_log_space_at_a_temperature_whose_exponentials_overflow(objective: str, same_class: bool) -> None:
    torch.manual_seed(3)
    contrast = Contrast(8, 8, torch.arange(200) % 10, objective, 0.05, 50, same_class, dim=8, temperature=0.004)
    student, rows = torch.randn(16, 8, requires_grad=True), torch.arange(16)
    loss, _ = contrast(student, torch.randn(16, 8), rows, KEY)
    loss.backward()
    assert loss.isfinite()
    assert student.grad.isfinite().all()


# ---- negatives


def chi_square(counts: Tensor, expected: float, freedom: int) -> float:
    """Standard deviations by which the statistic is off."""
    statistic = ((counts.double() - expected) ** 2 / expected).sum().item()
    return (statistic - freedom) / math.sqrt(2 * freedom)


def ways_to_draw(others: OtherClasses, rows: Tensor, k: int, *key: int) -> dict[str, Tensor]:
    """As a CPU does, and as a GPU: where most rows are wanted, and where few are."""
    ways = {way: name for way, name in WAYS.items() if name != "_first" or 2 * k <= others.fewest}
    return {way: getattr(others, name)(rows, k, key) for way, name in ways.items()}


WAYS = {"CPU": "_row_by_row", "GPU, most": "_smallest", "GPU, few": "_first"}


@pytest.mark.parametrize("k", [1, 7, 13, 23])
def test_no_own_class_no_repeats(k: int) -> None:
    others = OtherClasses(UNEVEN * 7 - 3)
    rows = torch.arange(40)
    for way, drawn_rows in ways_to_draw(others, rows, k, 0).items():
        assert drawn_rows.shape == (40, k), way
        assert (UNEVEN[drawn_rows] != UNEVEN[:, None]).all(), way
        assert (drawn_rows.sort(1).values.diff(dim=1) > 0).all(), way


def test_every_subset_is_equally_likely() -> None:
    """6 rows of other classes: all 6 singles and fives, 15 pairs, 20 triples; many samples of one class, many keys."""
    labels = torch.cat([torch.zeros(150, dtype=torch.long), torch.tensor([1, 1, 2, 3, 3, 3])])
    others = OtherClasses(labels)
    for k, subsets in ((1, 6), (2, 15), (3, 20), (5, 6)):
        for way in ways_to_draw(others, torch.arange(1), k, 0):
            rows = torch.cat([ways_to_draw(others, torch.arange(150), k, key)[way] for key in range(12)])
            counts = torch.bincount((1 << (rows - 150)).sum(1))
            counts = counts[counts > 0]
            assert len(counts) == subsets, way
            assert abs(chi_square(counts, len(rows) / subsets, subsets - 1)) < 4, way


def test_each_row_is_drawn_alike_at_size_and_samples_are_independent() -> None:
    n, size, k, classes = 300, 3000, 700, 10
    others = OtherClasses(torch.arange(size) % classes)
    same = torch.arange(n) * classes  # all of class 0
    for way, rows in ways_to_draw(others, same, k, 1).items():
        m = size - size // classes
        counts = torch.bincount(rows.flatten(), minlength=size).view(-1, classes)[:, 1:].flatten()
        p = k / m
        # a row's count is binomial(n, p), and the counts have a fixed sum
        spread = ((counts - n * p) ** 2).sum().item() / (n * p * (1 - p))
        assert abs(spread - (m - 1)) < 4 * math.sqrt(2 * m), way
        inside = torch.zeros(n, size, dtype=torch.float64).scatter_(1, rows, 1.0)
        overlap = (inside @ inside.T)[torch.ones(n, n).triu(1).bool()]
        variance = k * p * (1 - p) * (m - k) / (m - 1)  # of a hypergeometric overlap
        assert abs(overlap.mean() - k * p) < 5 * math.sqrt(variance / len(overlap)), way
        assert overlap.var() == pytest.approx(variance, rel=0.05), way


def test_a_draw_depends_on_sample_and_key_alone() -> None:
    others = OtherClasses(EVEN)
    for way in WAYS:
        together = ways_to_draw(others, ROWS, 9, 4, 0)[way]
        alone = ways_to_draw(others, ROWS[2:3], 9, 4, 0)[way]
        assert torch.equal(together[2], alone[0])
        for other in (ways_to_draw(others, ROWS, 9, 4, 1)[way], ways_to_draw(others, ROWS.flip(0), 9, 4, 0)[way]):
            assert not torch.equal(together, other)
        assert not torch.equal(together[0].sort().values, together[2].sort().values)


def test_parts_of_a_batch_draw_as_the_whole() -> None:
    others = OtherClasses(EVEN)
    for way in (others._smallest, others._first):
        parts = [way(part, 9, (0,)) for part in ROWS.split(2)]
        assert torch.equal(torch.cat(parts), way(ROWS, 9, (0,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"negatives": 24}, "24 negatives are asked for, but a sample here has as few as 23 .* from 1 to 23, or neg"),
        ({"negatives": 0}, "0 negatives are asked for"),
        ({"negatives": "most"}, "negatives is 'most': write a number, say 16384, or 'all'"),
        ({"labels": torch.ones(9, dtype=torch.long)}, "all samples are of one class"),
        ({"labels": torch.ones(9, 2, dtype=torch.long)}, r"labels have shape \(9, 2\)"),
        ({"objective": "nce"}, "objective is 'nce', which is not known: write one of crd, cpc, ml_cpc"),
        ({"alpha": "20:0.1"}, "alpha is 20 but must lie strictly between 0 and m = 13"),
        ({"temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_errors_are_one_clear_line(change: dict[str, Any], message: str) -> None:
    settings = {"labels": UNEVEN, "negatives": 12} | change
    with pytest.raises(InputError, match=message) as error:
        Contrast(3, 3, settings.pop("labels"), **settings)
    assert "\n" not in str(error.value)


# ---- KD


def test_kd_is_the_divergence_of_softened_predictions() -> None:
    student, teacher = drawn(5, 6, seed=1).requires_grad_(), drawn(5, 6, seed=2).requires_grad_()
    loss = kd_loss(student, teacher)
    wanted = torch.zeros((), dtype=torch.float64)
    for ours, theirs in zip(student, teacher, strict=True):
        p, q = torch.softmax(theirs.detach() / 4, 0), torch.softmax(ours / 4, 0)
        wanted = wanted + 16 * (p * (p / q).log()).sum() / 5
    torch.testing.assert_close(loss, wanted, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(torch.autograd.grad(loss, student), torch.autograd.grad(wanted, student))
    loss = kd_loss(student, teacher)
    loss.backward()
    assert teacher.grad is None
    assert kd_loss(student, student).item() == pytest.approx(0, abs=1e-12)
    assert kd_loss(student.half() * 1e3, teacher.half() * 1e3).isfinite()


def test_kd_needs_the_same_classes() -> None:
    with pytest.raises(InputError, match="KD needs one set of classes"):
        kd_loss(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(InputError, match="temperature is 0"):
        kd_loss(torch.zeros(2, 3), torch.zeros(2, 3), 0)


# ---- the study's pairs


def test_the_pairs_are_those_of_the_published_tables_and_are_networks_of_ours() -> None:
    text = resources.files("mlcpc.reproduce").joinpath("published/distillation.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert list(dict.fromkeys((r["table"], r["teacher"], r["student"]) for r in rows)) == [
        (pair.table, *pair.labels) for pair in PAIRS
    ]
    assert len(rows) == 13 * 9
    for pair in PAIRS:
        for name, label in zip((pair.teacher, pair.student), pair.labels, strict=True):
            assert name in models.MODELS
            assert models.canonical(label) == name
        small = pair.student.startswith(("Mobile", "Shuffle"))
        assert pair.rate == (0.01 if small else 0.05)


# ---- a GPU, where there is one


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("same_class", [False, True])
@pytest.mark.parametrize("negatives", [500, "all"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_gpu_agrees_and_is_never_waited_for(objective: str, negatives: Any, same_class: bool, narrow: bool) -> None:
    torch.manual_seed(3)
    contrast = Contrast(32, 48, torch.arange(2000) % 10, objective, 0.05, negatives, same_class, dim=32).eval()
    student, teacher, rows = torch.randn(64, 32), torch.randn(64, 48), torch.arange(64)
    drawn_rows = contrast.others.draw(rows, 500, *KEY)
    contrast.others.draw = lambda rows, k, *key: drawn_rows.to(rows.device)
    wanted = contrast(student, teacher, rows, KEY)[0]
    gradient = torch.autograd.grad(wanted, contrast.project_student.weight)[0]
    contrast.cuda().train()
    drawn_rows = drawn_rows.cuda()
    student, teacher, rows = student.cuda(), teacher.cuda(), rows.cuda()
    contrast(student, teacher, rows, KEY)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
            loss, _ = contrast(student, teacher, rows, KEY)
        (found,) = torch.autograd.grad(loss, contrast.project_student.weight)
        contrast.others.__class__.draw(contrast.others, rows, 500, *KEY)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(loss.cpu(), wanted, rtol=0.03 if narrow else 1e-4, atol=0)
    assert (found.cpu() - gradient).norm() < (0.1 if narrow else 1e-3) * gradient.norm()
    contrast.update()


# ---- several ranks: this file run as `python test_distill_losses.py RANK WORLD FOLDER`


@pytest.mark.parametrize("world", [2])
def test_ranks_together_equal_one_process(world: int, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(world), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(world)
    ]
    try:
        outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for process in ranks:
            process.kill()
    for process, output in zip(ranks, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]


def one_rank(rank: int, world: int, folder: str) -> None:
    """Losses, mean gradients, numbers and banks of two steps, against those of the whole batch."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    parts = ROWS.tensor_split(world)
    start = sum(len(part) for part in parts[:rank])
    own = slice(start, start + len(parts[rank]))
    for objective in OBJECTIVES:
        for negatives in (12, "all"):
            for same_class in (False, True):
                results = []
                for rows, group in ((own, dist.group.WORLD), (slice(None), None)):
                    contrast = contrast_of(UNEVEN, objective, negatives=negatives, same_class=same_class)
                    found: dict[str, Tensor] = {}
                    for step in range(2):
                        student, teacher = batch()
                        loss, numbers = contrast(student[rows], teacher[rows], ROWS[rows], (*KEY, step), group=group)
                        loss.backward()
                        contrast.update(group=group)
                        found |= {f"{name} {step}": number for name, number in numbers.items()}
                    for name, parameter in contrast.named_parameters():
                        gradient = parameter.grad
                        if group is not None:
                            dist.all_reduce(gradient)
                            gradient /= world
                        found["gradient of " + name] = gradient
                    results.append(found | contrast.state_dict())
                torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads sometimes abort the interpreter's own exit


if __name__ == "__main__":
    one_rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
