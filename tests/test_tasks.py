"""Tasks: their information against independent computations, their samplers against their own description."""

import csv
import math
from pathlib import Path

import pytest
import torch

from mlcpc.mi import maps
from mlcpc.mi.baselines import cca, ksg
from mlcpc.mi.tasks import TASKS, TWELVE, cubic, dense, discrete, gaussian, mixture, pairs, student

ROOT = Path(__file__).parent.parent
#: the true values that other people's implementations give for the twelve, to three digits
KNOWN = (0.413, 1.709, 0.333, 0.224, 0.413, 1.292, 1.624, 1.022, 1.022, 0.448, 1.022, 1.022)


@pytest.mark.parametrize(("name", "known"), list(zip(TWELVE, KNOWN, strict=True)))
def test_true_values(name: str, known: float) -> None:
    assert TASKS[name].mi == pytest.approx(known, abs=6e-4)


@pytest.mark.parametrize("task", list(TASKS.values()), ids=list(TASKS))
def test_samples_are_finite_pairs_and_repeat(task) -> None:
    x, y = task.sample(100, torch.Generator().manual_seed(5))
    again = task.sample(100, torch.Generator().manual_seed(5))
    assert len(x) == len(y) == 100
    assert x.ndim == y.ndim == 2
    assert x.isfinite().all()
    assert y.isfinite().all()
    assert torch.equal(x, again[0])
    assert torch.equal(y, again[1])
    assert task.mi > 0


def test_there_are_forty() -> None:
    assert len(TASKS) == 40


@pytest.mark.parametrize("task", [dense(5), pairs(5), gaussian(4, 2.0)], ids=lambda task: task.name)
def test_gaussian_tasks_have_the_information_of_their_covariance(task) -> None:
    assert cca(*task.sample(40_000, torch.Generator().manual_seed(1))) == pytest.approx(task.mi, abs=0.02)


@pytest.mark.parametrize("name", ["additive noise 0.1", "additive noise 0.75", "asinh student 1×1", "bimodal 1×1"])
def test_one_dimensional_tasks_agree_with_nearest_neighbours(name: str) -> None:
    x, y = TASKS[name].sample(4000, torch.Generator().manual_seed(2))
    assert ksg(x, y, most=4000) == pytest.approx(TASKS[name].mi, abs=0.07)


def test_student_information_is_that_of_its_density() -> None:
    """log p(x, y) − log p(x) − log p(y) of the densities, averaged over samples."""
    task, dof = student(2, 3), 3
    x, y = (side.double() for side in task.sample(100_000, torch.Generator().manual_seed(3)))

    def log_density(square: torch.Tensor, dim: int) -> torch.Tensor:
        constant = math.lgamma((dof + dim) / 2) - math.lgamma(dof / 2) - dim / 2 * math.log(dof * math.pi)
        return constant - (dof + dim) / 2 * (square / dof).log1p()

    a, b = x.square().sum(1), y.square().sum(1)
    ratio = log_density(a + b, 4) - log_density(a, 2) - log_density(b, 2)
    assert float(ratio.mean()) == pytest.approx(task.mi, abs=5 * float(ratio.std()) / math.sqrt(len(ratio)))


def test_discrete_information_is_the_sum_over_its_table() -> None:
    k, keep = 5, 0.7
    table = torch.full((k, k), (1 - keep) / k**2) + keep / k * torch.eye(k)
    exact = float((table * (table * k * k).log()).sum())
    assert discrete(k, keep).mi == pytest.approx(exact, abs=1e-6)


def test_mixture_information_by_quadrature() -> None:
    rho = 0.9
    grid = torch.linspace(-7, 7, 1401, dtype=torch.float64)
    x, y = torch.meshgrid(grid, grid, indexing="ij")
    normal = (-(x.square() + y.square()) / 2).exp() / (2 * math.pi)

    def joint(r: float) -> torch.Tensor:
        square = (x.square() - 2 * r * x * y + y.square()) / (1 - r * r)
        return (-square / 2).exp() / (2 * math.pi * math.sqrt(1 - r * r))

    p = (joint(rho) + joint(-rho)) / 2
    exact = float((p * (p.clamp_min(1e-300) / normal.clamp_min(1e-300)).log()).sum() * (grid[1] - grid[0]) ** 2)
    task = mixture(rho)
    assert abs(task.mi - exact) < 4 * task.mi_error


@pytest.mark.parametrize("turn", [maps.half_cube, maps.wiggly_x, maps.wiggly_y, maps.normal_cdf, maps.bimodal])
def test_column_maps_increase(turn) -> None:
    x = torch.linspace(-4, 4, 2001, dtype=torch.float64)[:, None]
    assert (turn(x).diff(dim=0) > 0).all()


def test_spiral_keeps_lengths_and_can_be_undone() -> None:
    x = torch.randn(200, 5)
    turned = maps.spiral(x, (1, 2))
    torch.testing.assert_close(turned.norm(dim=1), x.norm(dim=1))
    torch.testing.assert_close(maps.spiral(turned, (1, 2), speed=-1 / 5), x, atol=1e-4, rtol=1e-4)


def test_rotated_cubic_hides_the_cube() -> None:
    x, y = cubic(20, 5.0).sample(20_000, torch.Generator().manual_seed(0))
    assert 2.5 < cca(x, y) < 3.0  # the Gaussian fit sees about half of it


def measured(mode: str = "default") -> list[dict[str, str]]:
    rows = csv.DictReader((ROOT / "results/bench/mi.csv").read_text().splitlines())
    return [row for row in rows if row["mode"] == mode and int(row["seed"]) >= 120]


def error(rows: list[dict[str, str]], column: str = "lower_bound") -> float:
    return sum(abs(float(r[column]) - float(r["truth"])) for r in rows) / len(rows)


def test_measured_accuracy_is_what_the_page_says() -> None:
    page = " ".join((ROOT / "docs/mutual-information.md").read_text().split())
    rows = measured()
    forty, high = ([r for r in rows if r["n"] == n] for n in ("10000", "20000"))
    assert {r["task"] for r in forty} == set(TASKS)
    assert len(forty) == 40 * 3
    groups = {
        "twelve tasks": [r for r in forty if r["task"] in TWELVE],
        "all forty": forty,
        "one column each side": [r for r in forty if "1×1" in r["task"] or r["task"].startswith("additive")],
    }
    for name, some in groups.items():
        assert f"| {name} | {error(some):.3f} | {error(some, 'point'):.3f} |" in page
    for task in ("spiral 5×5", "asinh student 5×5"):
        some = [r for r in forty if r["task"] == task]
        assert f"| {task} | {error(some):.3f} | {error(some, 'point'):.3f} |" in page
    for r in high:
        assert f"| {r['task']} | {float(r['lower_bound']):.2f} |" in page
    over = sum(float(r["ci_low"]) > float(r["truth"]) for r in forty)
    assert f"`ci_low` is above the truth in {over} of 120" in page
    assert not any(float(r["certified"]) > float(r["truth"]) for r in forty)


def test_the_comparison_with_others_is_what_was_measured() -> None:
    page = (ROOT / "docs/mutual-information.md").read_text()
    rows = list(csv.DictReader((ROOT / "results/bench/mi_peers.csv").read_text().splitlines()))
    for method in {row["method"] for row in rows}:
        some = [row for row in rows if row["method"] == method]
        seconds = sorted(float(row["seconds"]) for row in some)
        line = f"| {error(some, 'estimate'):.3f} | {seconds[0]:.1f}–{seconds[-1]:.1f} |"
        assert line in page, f"{method}: {line}"
