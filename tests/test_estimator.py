"""estimate_mi and its kin: what must hold of any honest estimate, and what people hand in."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest
import torch

import mlcpc
from mlcpc import estimate_mi
from mlcpc.mi.certificate import certified_low
from mlcpc.mi.held_out import Bent, HeldOut, read_bound, stream_blocks, stream_shifts
from mlcpc.mi.methods import METHODS
from mlcpc.mi.networks import Embedded
from mlcpc.mi.tasks import TASKS, TWELVE, discrete
from mlcpc.objectives import ml_cpc
from mlcpc.scores import in_batch

QUICK = {"fast": True, "steps": 150}


def sample(name: str, n: int, seed: int = 11):
    return TASKS[name].sample(n, torch.Generator().manual_seed(seed))


# --- the bound itself ------------------------------------------------------------------------------------------------


def embedded(n: int = 37) -> Embedded:
    g = torch.Generator().manual_seed(1)
    return Embedded(*(torch.randn(*shape, generator=g) for shape in ((n, 3), (n,), (n, 3), (n,))))


def dense(e: Embedded) -> torch.Tensor:
    return (e.left @ e.right.T + e.from_x[:, None] + e.from_y[None]).double()


@pytest.mark.parametrize("scale", [1.0, 40.0])  # at 40 most of a row is 100 nats and more below its top
def test_streaming_equals_dense_and_the_library_objective(scale: float) -> None:
    e = embedded()._replace(left=scale * embedded().left)
    s = dense(e)
    held = stream_blocks(e)
    value, _, top = read_bound(held)
    n = len(s)
    torch.testing.assert_close(value, float(ml_cpc(in_batch(s), mlcpc.alpha_min(n, n))), atol=1e-4, rtol=1e-6)
    assert top == pytest.approx(math.log(n * (n - 1) + 1))
    off = s.masked_fill(torch.eye(n, dtype=torch.bool), -torch.inf)
    torch.testing.assert_close(held.row_lse, off.logsumexp(1), atol=1e-5, rtol=1e-6)
    seen = held.col_lse > float(held.row_lse.max()) - 80  # what is lower is nothing beside the rest
    torch.testing.assert_close(held.col_lse[seen], off.logsumexp(0)[seen], atol=1e-4, rtol=1e-6)
    assert (off.logsumexp(0)[~seen] < float(held.row_lse.max()) - 79).all()


def test_blocks_and_shifts_read_the_same(monkeypatch) -> None:
    e = embedded(50)
    s = dense(e).float()
    rows = torch.arange(50)
    groups = [list(range(1, 30)), list(range(30, 50))]
    shifted = stream_shifts(lambda g: torch.stack([s[rows, (rows + k) % 50] for k in g]), groups, Bent(cap=2.0))
    blocks = stream_blocks(e, Bent(cap=2.0))
    for a, b in zip(
        (shifted.pos, shifted.row_lse, shifted.col_lse), (blocks.pos, blocks.row_lse, blocks.col_lse), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    assert shifted.m == blocks.m


@pytest.mark.parametrize("method", ["ml_cpc", "dv", "nwj"])
def test_standard_error_is_that_of_repeated_samples(method: str) -> None:
    """A fixed critic on many fresh samples: the spread of its values is what the influence says."""
    g = torch.Generator().manual_seed(2)
    values, errors = [], []
    for _ in range(200):
        x, noise = torch.randn(2, 150, 1, generator=g)
        y = 0.6 * x + 0.8 * noise
        e = Embedded(0.9 * x, -0.25 * x[:, 0] ** 2, y, -0.25 * y[:, 0] ** 2)
        value, influence, _ = read_bound(stream_blocks(e), method)
        values.append(value)
        errors.append(float(influence.std()) / math.sqrt(len(influence)))
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.25)


def test_no_scores_pass_the_ceiling() -> None:
    pos = torch.full((20,), 50.0, dtype=torch.float64)
    quiet = torch.full((20,), -50.0, dtype=torch.float64)
    value, _, top = read_bound(HeldOut(pos, quiet, quiet, 20))
    assert value == pytest.approx(top)


# --- what must hold of an estimate -----------------------------------------------------------------------------------


def test_independent_data_share_nothing() -> None:
    g = torch.Generator().manual_seed(3)
    result = estimate_mi(torch.randn(1500, 2, generator=g), torch.randn(1500, 3, generator=g), **QUICK)
    assert abs(result.lower_bound) < 0.03
    assert result.ci_low < 1e-6
    assert result.certified_low() == 0
    assert "may be independent" in result.sentence()


@pytest.mark.parametrize("words", [False, True])
def test_discrete_x_equal_y_has_its_entropy(words: bool) -> None:
    x, _ = discrete(6).sample(900, torch.Generator().manual_seed(4))
    codes = [f"level {int(v)}" for v in x] if words else x
    result = estimate_mi(codes, codes, **QUICK)
    assert result.lower_bound == pytest.approx(math.log(6), abs=0.1)
    assert result.lower_bound - 3 * result.se < math.log(6) < result.max_detectable


def test_increasing_maps_of_columns_change_nothing_in_rank_mode() -> None:
    x, y = sample("2-pair 3×3", 800)
    plain = estimate_mi(x, y, inputs="rank", **QUICK)
    bent = estimate_mi(x.double().exp(), y.double().pow(3), inputs="rank", **QUICK)
    assert bent.lower_bound == pytest.approx(plain.lower_bound, abs=1e-5)


def test_symmetric_within_error() -> None:
    x, y = sample("2-pair 3×3", 1500)
    there, back = estimate_mi(x, y, **QUICK), estimate_mi(y, x, **QUICK)
    assert abs(there.lower_bound - back.lower_bound) < 3 * math.hypot(there.se, back.se)


def test_a_seed_is_a_number() -> None:
    x, y = sample("normal 1×1", 500)
    first, second, other = (estimate_mi(x, y, seed=seed, **QUICK).lower_bound for seed in (0, 0, 1))
    assert first == second != other


@pytest.mark.parametrize("name", ["normal 1×1", "2-pair 5×5", "asinh student 2×2", "dense 5×5"])
def test_never_above_the_truth_by_more_than_its_error(name: str) -> None:
    result = estimate_mi(*sample(name, 1500), fast=True)
    assert result.lower_bound - 3 * result.se < TASKS[name].mi
    assert result.lower_bound > 0.4 * TASKS[name].mi  # and it is not void
    assert result.certified_low() < result.lower_bound


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_no_task_is_overstated(name: str) -> None:
    result = estimate_mi(*sample(name, 4000), fast=True)
    assert result.lower_bound - 3 * result.se < TASKS[name].mi
    assert result.certified_low() < TASKS[name].mi


@pytest.mark.slow
@pytest.mark.parametrize("name", TWELVE)
def test_the_twelve_within_reach(name: str) -> None:
    result = estimate_mi(*sample(name, 10_000))
    assert result.ci_low < TASKS[name].mi
    assert result.lower_bound == pytest.approx(TASKS[name].mi, abs=0.2)  # worst: spiral 5×5, 0.09–0.16 by seed


@pytest.mark.parametrize("method", METHODS)
def test_other_methods_under_the_same_door(method: str) -> None:
    result = estimate_mi(*sample("normal 1×1", 1500), method=method, **QUICK)
    assert result.lower_bound == pytest.approx(0.413, abs=0.12)
    assert (result.max_detectable == math.inf) == (method in ("dv", "nwj", "smile", "js"))


def test_certificate_holds_as_often_as_it_says() -> None:
    """The exact critic on fresh rows, many times: the certificate is below the truth, and not void."""
    g, rho = torch.Generator().manual_seed(6), 0.9
    truth, over, lows = -0.5 * math.log(1 - rho**2), 0, []

    def ratio(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -0.5 * math.log(1 - rho**2) - (rho**2 * (x**2 + y**2) - 2 * rho * x * y) / (2 * (1 - rho**2))

    def draw(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, noise = torch.randn(2, n, 2, generator=g)
        y = rho * x + math.sqrt(1 - rho**2) * noise
        return ratio(x, y), ratio(x, y.flip(1))

    for _ in range(60):
        low = certified_low([draw(400)] * 2, [draw(100)] * 2)
        over += low > truth
        lows.append(low)
    assert over <= 6  # 5 % of 60 is 3
    assert np.mean(lows) > 0.3 * truth
    with pytest.raises(ValueError, match="confidence is 1"):
        certified_low([draw(10)], [draw(10)], confidence=1.0)


# --- the result ------------------------------------------------------------------------------------------------------


def test_result_shows_itself(tmp_path) -> None:
    result = estimate_mi(*sample("normal 1×1", 300), bits=True, **QUICK)
    assert result.unit == "bits"
    assert result.bits is result
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["ci_low"] == pytest.approx(result.ci_low)
    assert set(plain["baselines"]) == {"CCA", "KSG"}
    result.plot().savefig(tmp_path / "mi.svg")
    assert "bits" in (tmp_path / "mi.svg").read_text()
    assert pickle.loads(pickle.dumps(result)) == result
    for a, b in itertools.pairwise([result.ci_low, result.lower_bound, result.max_detectable]):
        assert a < b
