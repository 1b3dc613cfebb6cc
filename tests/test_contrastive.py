"""ContrastiveLoss, every source of negatives, both engines, against the twin that goes pair by pair."""

import math
import re
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import reference
from mlcpc import ContrastiveLoss, GuaranteeWarning, contrastive_loss, in_batch
from mlcpc import loss as mlcpc_loss
from mlcpc import tiles as engine_tiles
from mlcpc.batches import Layout
from mlcpc.square import square_loss

pytestmark = pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")
N, D, K = 7, 5, 9


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def integers(*shape: int, high: int = 4, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def case(**tensors: Any) -> dict[str, Any]:
    return tensors


IDS = torch.tensor([0, 1, 2, 1, 3, 0, 4])
LABELS = torch.tensor([0, 1, 0, 1, 2, 2, 0])
#: name → the keyword arguments beside queries and keys. One row more is one source of negatives more, in every test.
SOURCES: dict[str, dict[str, Any]] = {
    "in-batch": case(),
    "symmetric": case(layout="symmetric"),
    "two-view": case(layout="two-view"),
    "in-batch ids": case(ids=IDS),
    "symmetric ids": case(layout="symmetric", ids=IDS),
    "two-view ids": case(layout="two-view", ids=IDS),
    "queue": case(negatives=draw(K, D, seed=3)),
    "queue ids": case(negatives=draw(K, D, seed=3), ids=IDS, negative_ids=integers(K, seed=1)),
    "queue and in-batch": case(negatives=draw(K, D, seed=3), in_batch=True),
    "queue and in-batch ids": case(
        negatives=draw(K, D, seed=3), in_batch=True, ids=IDS, negative_ids=integers(K, seed=1)
    ),
    "per anchor": case(negatives=draw(N, K, D, seed=3)),
    "per anchor ids": case(negatives=draw(N, K, D, seed=3), ids=IDS, negative_ids=integers(N, K, seed=1)),
    "bank": case(negatives=draw(20, D, seed=3), indices=integers(N, K, high=20)),
    "bank ids": case(
        negatives=draw(20, D, seed=3), indices=integers(N, K, high=20), ids=IDS, negative_ids=integers(20, high=9)
    ),
    "labels": case(labels=LABELS),
    "labels of one set": case(labels=LABELS, keys=None),
    "labels two-view": case(labels=LABELS, layout="two-view"),
    "labels symmetric": case(labels=LABELS, layout="symmetric"),
}
TRAINED = {
    "learnt negatives": case(negatives=draw(K, D, seed=3)),
    "learnt negatives and in-batch": case(negatives=draw(K, D, seed=3), in_batch=True),
    "learnt negatives and in-batch, ids of the batch alone": case(negatives=draw(K, D, seed=3), in_batch=True, ids=IDS),
    "learnt per anchor": case(negatives=draw(N, K, D, seed=3)),
}


def inputs(extra: dict[str, Any], trained: bool) -> tuple[list[Tensor], dict[str, Any]]:
    queries, keys = (draw(N, D, seed=seed).requires_grad_() for seed in (1, 2))
    extra = {"keys": keys} | extra
    leaves = [queries] + [x for x in [extra["keys"]] if x is not None]
    if trained:
        extra["negatives"] = extra["negatives"].clone().requires_grad_()
        leaves.append(extra["negatives"])
    return leaves, extra


ALL = {name: (extra, False) for name, extra in SOURCES.items()} | {
    name: (extra, True) for name, extra in TRAINED.items()
}


@pytest.fixture(params=["one tile", "small tiles", "no room"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own shapes; tiles of 2 × 3; and those with a running maximum."""
    if request.param != "one tile":
        monkeypatch.setattr(engine_tiles, "tile_shape", lambda n, keys, dtype, device: (min(2, n), min(3, keys)))
        monkeypatch.setattr(engine_tiles, "strip_rows", lambda keys, dtype, device: 2)
    if request.param == "no room":
        monkeypatch.setattr(engine_tiles, "fits", lambda q, k, pairs: False)


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.usefixtures("tiles")
def test_tiled_equals_the_twin_in_value_and_gradients(name: str, objective: str) -> None:
    check(name, objective, "tiled")


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("name", ALL)
def test_dense_equals_the_twin_in_value_and_gradients(name: str, objective: str) -> None:
    check(name, objective, "dense")


def check(name: str, objective: str, engine: str) -> None:
    extra, trained = ALL[name]
    leaves, extra = inputs(extra, trained)
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    settings_ = {"objective": objective, "alpha": 0.3, "temperature": temperature, **extra}
    ours = contrastive_loss(leaves[0], engine=engine, **settings_)
    slow = reference.contrastive(leaves[0], **settings_)
    assert ours.item() == pytest.approx(slow.item(), rel=1e-10, abs=1e-10)
    got, wanted = (torch.autograd.grad(value, [*leaves, temperature]) for value in (ours, slow))
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_problems(data: st.DataObject) -> None:
    """Any sizes, any scale, ties and repeats included; `test_ten_thousand_random_problems` is the long form."""
    random_problem(data)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(st.data())
def test_ten_thousand_random_problems(data: st.DataObject) -> None:
    random_problem(data)


def random_problem(data: st.DataObject) -> None:
    n, d, k = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    values = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]) | st.floats(-2, 2)

    def matrix(*shape: int) -> Tensor:
        size = math.prod(shape)
        drawn = data.draw(st.lists(values, min_size=size, max_size=size))
        return torch.tensor(drawn, dtype=torch.float64).view(shape).requires_grad_()

    queries, keys = matrix(n, d), matrix(n, d)

    def integers_(*shape: int, high: int) -> Tensor:
        size = math.prod(shape)
        return torch.tensor(data.draw(st.lists(st.integers(0, high), min_size=size, max_size=size))).view(shape)

    kinds = ["in-batch", "symmetric", "two-view", "queue", "both", "learnt", "each", "bank", "labels", "one set"]
    kind = data.draw(st.sampled_from(kinds))
    extra: dict[str, Any] = {}
    if kind in ("symmetric", "two-view"):
        extra = {"layout": kind}
    elif kind in ("queue", "both", "learnt"):
        extra = {"negatives": matrix(k, d), "in_batch": kind == "both" or None}
        if kind != "learnt":
            extra["negatives"] = extra["negatives"].detach()
    elif kind == "each":
        extra = {"negatives": matrix(n, k, d)}
    elif kind == "bank":
        extra = {"negatives": matrix(k, d).detach(), "indices": integers_(n, 3, high=k - 1)}
    elif kind in ("labels", "one set"):
        extra = {"labels": integers_(n, high=1), "layout": data.draw(st.sampled_from(get_args(Layout)))}
        keys = keys if kind == "labels" else None
    if "labels" not in extra and data.draw(st.booleans()):
        extra["ids"] = integers_(n, high=3)
        if "negatives" in extra and data.draw(st.booleans()):
            extra["negative_ids"] = integers_(*extra["negatives"].shape[:-1], high=5)
    scale = data.draw(st.sampled_from([0.02, 0.3, 5.0]))
    objective = data.draw(st.sampled_from(["cpc", "ml_cpc"]))
    settings_ = {
        "objective": objective,
        "alpha": data.draw(st.floats(0.01, 1.9)),
        "temperature": data.draw(st.sampled_from([scale, torch.tensor(scale, dtype=torch.float64).requires_grad_()])),
        "normalize": False,
        **extra,
    }
    engine = data.draw(st.sampled_from(["tiled", "dense"]))
    try:
        got = contrastive_loss(queries, keys, engine=engine, **settings_)
    except ValueError as error:
        if re.search("has no (negative|positive)|must lie strictly between", str(error)):
            return  # what was drawn is no problem
        raise
    wanted = reference.contrastive(queries, keys, **settings_)
    assert got.item() == pytest.approx(wanted.item(), rel=1e-9, abs=1e-9)
    leaves = [x for x in (queries, keys, extra.get("negatives"), settings_["temperature"]) if isinstance(x, Tensor)]
    leaves = [x for x in leaves if x.requires_grad]
    grads = (torch.autograd.grad(value, leaves, allow_unused=True) for value in (got, wanted))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_is_infonce_in_one_line() -> None:
    queries, keys = draw(6, 5), draw(6, 5, seed=1)
    logits = F.normalize(queries, dim=1) @ F.normalize(keys, dim=1).T / 0.07
    target = torch.arange(6)
    torch.testing.assert_close(ContrastiveLoss("cpc")(queries, keys), F.cross_entropy(logits, target))
    clip = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    torch.testing.assert_close(ContrastiveLoss("cpc", layout="symmetric")(queries, keys), clip)


@pytest.mark.parametrize("source", ["in-batch", "two-view", "queue and in-batch", "bank", "per anchor", "in-batch ids"])
@pytest.mark.parametrize("engine", ["tiled", "dense"])
def test_details_at_no_extra_pass(source: str, engine: str) -> None:
    """Accuracies counted by hand from all scores."""
    queries, keys = draw(N, D, seed=1), draw(N, D, seed=1) + 0.7 * draw(N, D, seed=2)
    extra = SOURCES[source]
    result = contrastive_loss(queries, keys, engine=engine, alpha=0.5, details=True, **extra)
    plain = contrastive_loss(queries, keys, engine=engine, alpha=0.5, **extra)
    torch.testing.assert_close(result.loss, plain)
    pos, rows = scores_by_hand(queries, keys, extra)
    per_row = sum(p > max(row) for p, row in zip(pos, rows, strict=True)) / len(pos)
    labelled = sorted([(x, 1) for x in pos] + [(x, 0) for row in rows for x in row], reverse=True)
    joint = sum(mark for _, mark in labelled[: len(pos)]) / len(pos)
    assert result.accuracy == pytest.approx(per_row)
    assert result.joint == pytest.approx(joint)
    assert 0 < joint < 1
    assert result.estimate == pytest.approx(result.ceiling - plain.item())
    mean_m = 1 + sum(map(len, rows)) / len(rows)
    assert result.ceiling == pytest.approx(math.log(mean_m / 0.5))
    assert result.guaranteed


def scores_by_hand(queries: Tensor, keys: Tensor, extra: dict[str, Any]) -> tuple[list[float], list[list[float]]]:
    q, k = F.normalize(queries, dim=1), F.normalize(keys, dim=1)
    if extra.get("layout") == "two-view":
        z = torch.cat([q, k])
        s = z @ z.T
        pos = [s[i, (i + N) % (2 * N)].item() for i in range(2 * N)]
        return pos, [[s[i, j].item() for j in range(2 * N) if j not in (i, (i + N) % (2 * N))] for i in range(2 * N)]
    s, ids, negatives = q @ k.T, extra.get("ids"), extra.get("negatives")
    rows: list[list[float]] = [[] for _ in range(N)]
    if negatives is None or extra.get("in_batch"):
        rows = [[s[i, j].item() for j in range(N) if j != i and (ids is None or ids[i] != ids[j])] for i in range(N)]
    if negatives is not None:
        each = F.normalize(negatives, dim=-1)
        each = each[extra["indices"]] if "indices" in extra else each.expand(N, *each.shape) if each.ndim == 2 else each
        rows = [row + (each[i] @ q[i]).tolist() for i, row in enumerate(rows)]
    return s.diagonal().tolist(), rows


def test_details_print_in_nats_and_bits() -> None:
    x = torch.eye(4)
    result = contrastive_loss(x, x, alpha=0.5, details=True)
    assert str(result) == "2.079 of 2.079 nats (α = 0.5, lower bound), top-1 100.0%, joint 100.0%"
    assert result.text(bits=True).startswith("3.000 of 3.000 bits")


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("dtype", "more"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3), (torch.float32, 5e-6)])
def test_low_precision_errs_no_more_than_the_twin_in_that_format(
    objective: str, source: str, dtype: torch.dtype, more: float
) -> None:
    """Plus a tolerance near the format's own. Seven rows of five numbers: rounding hardly averages out; see below."""
    queries = F.normalize(draw(N, D, seed=1), dim=1)
    keys = F.normalize(queries + 0.1 * draw(N, D, seed=2), dim=1)
    given = {"queries": queries, "keys": keys} | SOURCES[source]
    rounded = {name: cast(x, dtype) for name, x in given.items()}

    def run(function: Any, kind: torch.dtype) -> tuple[Tensor, ...]:
        trained = [k for k in ("queries", "keys") if rounded[k] is not None]
        leaves = {k: cast(rounded[k], kind).requires_grad_() for k in trained}
        rest = {k: cast(x, kind) for k, x in rounded.items()}
        value = function(objective=objective, alpha=0.1, **(rest | leaves))
        return value, *torch.autograd.grad(value, list(leaves.values()))

    exact = run(reference.contrastive, torch.float64)
    ours, naive = run(contrastive_loss, dtype), run(reference.contrastive, dtype)
    for got, plain, wanted in zip(ours, naive, exact, strict=True):
        assert got.dtype == (dtype if got.ndim else torch.float32)
        size = wanted.norm() if wanted.ndim else wanted.clamp_min(1)
        error, allowed = ((x.double() - wanted).norm() / size for x in (got, plain))
        assert error <= allowed + more


def cast(x: Any, dtype: torch.dtype) -> Any:
    return x.detach().to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_easy_positives_in_half_precision_keep_their_gradient(objective: str, dtype: torch.dtype) -> None:
    """Where rounded logits spoil it: positives stand far above, so each gradient is a small difference."""
    queries = F.normalize(draw(512, 64, seed=1), dim=1)
    keys = F.normalize(queries + 0.05 * draw(512, 64, seed=2), dim=1)
    low = [x.to(dtype).requires_grad_() for x in (queries, keys)]
    exact = [x.detach().double().requires_grad_() for x in low]
    arguments = {"objective": objective, "alpha": 0.5, "normalize": False}

    def error(gradients: tuple[Tensor, ...]) -> float:
        wanted = torch.autograd.grad(contrastive_loss(*exact, engine="dense", **arguments), exact)
        return max(((g.double() - w).norm() / w.norm()).item() for g, w in zip(gradients, wanted, strict=True))

    ours = error(torch.autograd.grad(contrastive_loss(*low, **arguments), low))
    naive = error(torch.autograd.grad(mlcpc_loss(in_batch(low[0] @ low[1].T / 0.07), objective, 0.5), low))
    assert ours <= 5e-3
    assert naive > 3 * ours


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("source", SOURCES)
def test_no_overflow_at_a_small_temperature(objective: str, dtype: torch.dtype, source: str) -> None:
    extra = {
        k: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for k, x in SOURCES[source].items()
    }
    queries, keys = (draw(N, D, seed=seed).to(dtype).requires_grad_() for seed in (1, 2))
    value = contrastive_loss(queries, objective=objective, alpha=0.1, temperature=0.01, **({"keys": keys} | extra))
    value.backward()
    exact = reference.contrastive(
        queries.detach().double(),
        objective=objective,
        alpha=0.1,
        temperature=0.01,
        **{
            k: x.detach().double() if isinstance(x, Tensor) and x.is_floating_point() else x
            for k, x in ({"keys": keys} | extra).items()
        },
    )
    assert value.item() == pytest.approx(exact.item(), rel=2e-2)
    assert queries.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_fused_square_leaves_what_exp2_cannot_hold_to_the_tiles(dtype: torch.dtype) -> None:
    x = F.normalize(draw(8, 4), dim=1).to(dtype)
    assert square_loss(x, x, 0.5, True, 1 / 0.07, True, dtype) is not None
    assert square_loss(x, x, 0.5, True, 1 / 0.01, True, dtype) is None
    assert square_loss(100 * x, x, 0.5, True, 1.0, False, dtype) is None


@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
def test_easy_positives_of_labels_in_half_precision_keep_their_gradient(objective: str) -> None:
    centres, labels = F.normalize(draw(256, 64, seed=1), dim=1), torch.arange(256).repeat(2)
    low = F.normalize(centres.repeat(2, 1) + 0.05 * draw(512, 64, seed=2), dim=1).bfloat16().requires_grad_()
    exact = low.detach().double().requires_grad_()
    arguments = {"objective": objective, "alpha": 0.5, "labels": labels}
    (got,) = torch.autograd.grad(contrastive_loss(low, **arguments), low)
    (wanted,) = torch.autograd.grad(contrastive_loss(exact, **arguments), exact)
    assert (got.double() - wanted).norm() <= 5e-3 * wanted.norm()


def test_large_batch_in_several_real_tiles() -> None:
    """The engine's own tile shapes with ragged ends, against plain autograd."""
    queries, keys = (draw(1100, 16, seed=seed).requires_grad_() for seed in (1, 2))
    for objective in ("cpc", "ml_cpc"):
        for layout in ("one-way", "symmetric", "two-view"):
            pair = [
                contrastive_loss(queries, keys, objective=objective, layout=layout, alpha=0.2, engine=engine)
                for engine in ("tiled", "dense")
            ]
            torch.testing.assert_close(*pair, rtol=1e-11, atol=1e-11)
            grads = [torch.autograd.grad(value, [queries, keys]) for value in pair]
            torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-13)


def test_double_backward_says_what_to_write() -> None:
    queries, keys = draw(4, 3).requires_grad_(), draw(4, 3, seed=1).requires_grad_()
    with pytest.raises(RuntimeError, match=r'double backward.*engine="dense"'):
        torch.autograd.grad(contrastive_loss(queries, keys), queries, create_graph=True)
    assert torch.autograd.gradgradcheck(lambda q, k: contrastive_loss(q, k, engine="dense", alpha=0.5), (queries, keys))


def test_backward_twice_with_a_retained_graph() -> None:
    queries, keys = draw(4, 3).requires_grad_(), draw(4, 3, seed=1)
    value = contrastive_loss(queries, keys)
    first = torch.autograd.grad(value, queries, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(value, queries), first)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::FutureWarning:torch")  # of the compiler itself
def test_autocast_and_compile() -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 4)
    x, y = torch.randn(16, 6), torch.randn(16, 6)
    loss = ContrastiveLoss("ml_cpc", alpha=0.2)
    plain = loss(net(x), net(y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = loss(net(x), net(y))
    mixed.backward()
    assert mixed.dtype == torch.float32
    assert mixed.item() == pytest.approx(plain.item(), rel=2e-2)
    assert net.weight.grad.isfinite().all()
    whole = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 10)  # older compilers break at backward by hand
    compiled = torch.compile(lambda a, b: loss(net(a), net(b)), backend="aot_eager", fullgraph=whole)
    torch.testing.assert_close(compiled(x, y), plain)
    torch.testing.assert_close(torch.autograd.grad(compiled(x, y), net.weight), torch.autograd.grad(plain, net.weight))


@pytest.mark.parametrize("n", [512, 1500])
@pytest.mark.parametrize("layout", ["one-way", "symmetric", "two-view"])
def test_autocast_keeps_the_gradient_of_easy_positives(layout: Any, n: int) -> None:
    """Whatever autocast does to the products, positives are scored in float32."""
    queries = F.normalize(draw(n, 64, seed=1), dim=1).float().requires_grad_()
    keys = F.normalize(queries.detach() + 0.05 * draw(n, 64, seed=2).float(), dim=1).requires_grad_()
    plain = contrastive_loss(queries, keys, alpha=0.5, layout=layout)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = contrastive_loss(queries, keys, alpha=0.5, layout=layout)
    assert mixed.dtype == torch.float32
    for got, wanted in zip(*(torch.autograd.grad(x, [queries, keys]) for x in (mixed, plain)), strict=True):
        assert (got - wanted).norm() <= 5e-3 * wanted.norm()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::FutureWarning:torch", "ignore:The .grad att")
@pytest.mark.parametrize("source", ["symmetric", "queue and in-batch ids", "bank", "per anchor", "labels"])
def test_every_kind_of_path_inside_a_compiled_model(source: str) -> None:
    leaves, extra = inputs(*ALL[source])
    net = torch.nn.Linear(D, D).double()

    def step(x: Tensor) -> Tensor:
        value: Tensor = contrastive_loss(net(x), objective="cpc", alpha=0.5, **extra)
        return value

    values = [f(leaves[0].detach()) for f in (step, torch.compile(step, backend="aot_eager"))]
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, net.weight) for value in values))


def test_learnt_temperature_is_clamped() -> None:
    loss = ContrastiveLoss(temperature=0.07, learn_temperature=True)
    assert loss.temperature.item() == pytest.approx(0.07)
    loss(torch.randn(8, 4), torch.randn(8, 4)).backward()
    assert loss.log_scale.grad.abs() > 0
    with torch.no_grad():
        loss.log_scale.fill_(50.0)
    assert loss.temperature.item() == pytest.approx(0.01)
    assert "temperature=0.01" in repr(loss)
    assert "log_scale" in loss.state_dict()


@pytest.mark.parametrize(("start", "aligned"), [(50.0, False), (-50.0, True)])
def test_a_learnt_temperature_comes_back_from_its_clamp(start: float, aligned: bool) -> None:
    """Hard batches want a higher temperature, solved ones a lower; neither may be stuck at the other's end."""
    loss, x = ContrastiveLoss(learn_temperature=True), torch.randn(8, 4)
    with torch.no_grad():
        loss.log_scale.fill_(start)
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
    at_the_end = loss.temperature.item()
    loss(x, x if aligned else torch.randn(8, 4)).backward()
    optimizer.step()
    assert loss.temperature.item() < at_the_end if aligned else loss.temperature.item() > at_the_end


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("objective", ["cpc", "ml_cpc"])
def test_a_tiny_model_learns_from_every_source(source: str, objective: str) -> None:
    extra, trained = ALL[source]
    torch.manual_seed(0)
    x = torch.randn(N, 8)
    f, g = torch.nn.Linear(8, D), torch.nn.Linear(8, D)
    more = {k: v.float() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in extra.items()}
    if trained:
        more["negatives"] = more["negatives"].clone().requires_grad_()
    optimizer = torch.optim.Adam([*f.parameters(), *g.parameters()], lr=0.03)
    history = []
    for _ in range(40):
        value = contrastive_loss(f(x), objective=objective, alpha=0.5, temperature=0.2, **({"keys": g(x)} | more))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        history.append(value.item())
    assert history[-1] < 0.7 * history[0]


def test_a_schedule_needs_progress() -> None:
    loss = ContrastiveLoss(alpha="2:0.5", temperature=1.0)
    x, y = draw(6, 5), draw(6, 5, seed=1)
    with pytest.raises(ValueError, match=r"schedule from 2 to 0.5: set loss.progress"):
        loss(x, y)
    loss.progress = 1.0
    torch.testing.assert_close(loss(x, y), ContrastiveLoss(alpha=0.5, temperature=1.0)(x, y))


def test_alpha_may_be_assigned_and_a_function_always_needs_progress() -> None:
    loss = ContrastiveLoss()
    loss.alpha = 0.5
    torch.testing.assert_close(loss(X, X), contrastive_loss(X, X, alpha=0.5))
    loss.alpha = lambda progress: 1 + progress * (1 - progress)
    with pytest.raises(ValueError, match=r"set loss\.progress"):
        loss(X, X)
    loss.progress = 0.5
    torch.testing.assert_close(loss(X, X), contrastive_loss(X, X, alpha=1.25))


def test_unnormalised_fp16_does_not_overflow() -> None:
    queries, keys = torch.full((4, 128), 30.0).half(), torch.full((4, 128), 30.0).half()
    queries[:, 0] += torch.arange(4).half()
    for objective in ("cpc", "ml_cpc"):
        for n in (4, 3):
            for extra in ({}, {"negatives": keys}, {"negatives": keys, "indices": torch.arange(n)[:, None]}):
                low = contrastive_loss(
                    queries[:n], keys[:n], normalize=False, temperature=1.0, objective=objective, **extra
                )
                wide = {key: x.double() if x.is_floating_point() else x for key, x in extra.items()}
                high = contrastive_loss(
                    queries[:n].double(),
                    keys[:n].double(),
                    normalize=False,
                    temperature=1.0,
                    objective=objective,
                    **wide,
                )
                assert low.item() == pytest.approx(high.item(), abs=0.03)  # scores of 115200 in float32


@pytest.mark.filterwarnings("default::mlcpc.GuaranteeWarning")
def test_the_warning_points_at_the_users_line() -> None:
    for call in (ContrastiveLoss(alpha=1e-4), lambda q, k: contrastive_loss(q, k, alpha=1e-4)):
        with pytest.warns(GuaranteeWarning) as caught:
            call(torch.randn(4, 3), torch.randn(4, 3))
        assert caught[0].filename == __file__


Z, I = torch.zeros, torch.ones  # noqa: E741
X = torch.eye(4)
BAD: dict[str, Any] = {
    "temperature": (lambda: ContrastiveLoss(temperature=0.0), ValueError, "temperature is 0.0"),
    "infinite temperature": (lambda: ContrastiveLoss(temperature=math.inf), ValueError, "temperature is inf"),
    "learnt temperature outside": (
        lambda: ContrastiveLoss(temperature=0.005, learn_temperature=True),
        ValueError,
        r"temperature is 0\.005 but a learnt one stays in \[0\.01, 1\]",
    ),
    "temperature of each row": (
        lambda: contrastive_loss(X, X, temperature=I(4)),
        ValueError,
        r"\(4,\) but must be one",
    ),
    "temperature as text": (lambda: ContrastiveLoss(temperature="0.07"), ValueError, "temperature is '0.07'"),
    "a learnt temperature gone wrong": (
        lambda: contrastive_loss(X, X, temperature=torch.tensor(-0.07)),
        ValueError,
        r"temperature is -0\.07",
    ),
    "a list": (lambda: contrastive_loss([[1.0]], X), TypeError, "queries is a list"),
    "temperature in the function": (lambda: contrastive_loss(X, X, temperature=-1.0), ValueError, "temperature is -1"),
    "objective": (lambda: ContrastiveLoss("infonce"), ValueError, "'infonce'"),
    "engine": (lambda: contrastive_loss(X, X, engine="fast"), ValueError, "engine is 'fast'"),
    "layout in the module": (lambda: ContrastiveLoss(layout="both"), ValueError, "layout is 'both'"),
    "engine in the module": (lambda: ContrastiveLoss(engine="fast"), ValueError, "engine is 'fast'"),
    "layout": (lambda: contrastive_loss(X, X, layout="both"), ValueError, "layout is 'both'"),
    "lengths": (lambda: contrastive_loss(X[:3], X), ValueError, r"\(3, 4\).*\(4, 4\)"),
    "no keys": (lambda: contrastive_loss(X), ValueError, "keys are missing"),
    "dims": (lambda: contrastive_loss(X, X, Z(5, 3)), ValueError, r"\(5, 3\).*dimension 4"),
    "integers": (lambda: contrastive_loss(X.long(), X), TypeError, "queries.float"),
    "NaN": (lambda: contrastive_loss(X, X.clone().fill_diagonal_(math.nan)), ValueError, "row 0 of keys is not finite"),
    "inf queue": (lambda: contrastive_loss(X, X, X / 0.0), ValueError, "row 0 of negatives"),
    "one pair": (lambda: contrastive_loss(X[:1], X[:1]), ValueError, "query 0 of 1 has no negative"),
    "empty": (lambda: contrastive_loss(X[:0], X[:0]), ValueError, "n = 0"),
    "empty queue": (lambda: contrastive_loss(X, X, Z(0, 4)), ValueError, "fill a queue"),
    "all masked": (lambda: contrastive_loss(X, X, ids=Z(4).long()), ValueError, "query 0 of 4 has no negative"),
    "ids length": (lambda: contrastive_loss(X, X, ids=Z(3).long()), ValueError, r"ids have shape \(3,\).*\(4,\)"),
    "ids as a list": (lambda: contrastive_loss(X, X, ids=[0, 1, 2, 3]), TypeError, r"write torch\.as_tensor\(ids\)"),
    "labels as a list": (lambda: contrastive_loss(X, labels=[0, 0, 1, 1]), TypeError, "labels is a list"),
    "ids elsewhere": (
        lambda: contrastive_loss(X, X, ids=torch.arange(4, device="meta")),
        ValueError,
        r"ids is on meta.*write ids\.to\('cpu'\)",
    ),
    "keys elsewhere": (lambda: contrastive_loss(X, X.to("meta")), ValueError, "keys on meta"),
    "negative ids without negatives": (
        lambda: contrastive_loss(X, X, ids=Z(4).long(), negative_ids=Z(4).long()),
        ValueError,
        "there are no negatives",
    ),
    "ids float": (lambda: contrastive_loss(X, X, ids=Z(4)), TypeError, r"ids\.long\(\)"),
    "negative ids alone": (lambda: contrastive_loss(X, X, X, negative_ids=Z(4).long()), ValueError, "ids of the pairs"),
    "negative ids length": (
        lambda: contrastive_loss(X, X, X, ids=Z(4).long(), negative_ids=Z(3).long()),
        ValueError,
        r"negative_ids have shape \(3,\)",
    ),
    "index too large": (lambda: contrastive_loss(X, X, X, indices=I(4, 2).long() * 4), ValueError, "hold 4.*0 to 3"),
    "index negative": (lambda: contrastive_loss(X, X, X, indices=-I(4, 2).long()), ValueError, "hold -1"),
    "indices shape": (lambda: contrastive_loss(X, X, X, indices=I(3, 2).long()), ValueError, r"\(3, 2\).*\(4, k\)"),
    "indices without bank": (lambda: contrastive_loss(X, X, indices=I(4, 2).long()), ValueError, "no bank"),
    "symmetric queue": (lambda: contrastive_loss(X, X, X, layout="symmetric"), ValueError, "one-way"),
    "no negatives at all": (lambda: contrastive_loss(X, X, in_batch=False), ValueError, "in_batch is False"),
    "anchor without positive": (
        lambda: contrastive_loss(X, labels=torch.tensor([0, 0, 1, 2])),
        ValueError,
        r"anchor 2 \(label 1\) has no positive",
    ),
    "anchor without negative": (lambda: contrastive_loss(X, labels=Z(4).long()), ValueError, "has no negative"),
    "labels and queue": (lambda: contrastive_loss(X, X, X, labels=Z(4).long()), ValueError, "labels do not go with"),
    "labels and indices": (
        lambda: contrastive_loss(X, X, labels=Z(4).long(), indices=I(4, 2).long()),
        ValueError,
        "labels do not go with indices",
    ),
    "group without init": (lambda: contrastive_loss(X, X, group=object()), ValueError, "init_process_group"),
    "double bank": (
        lambda: contrastive_loss(X, X, X.clone().requires_grad_(), indices=I(4, 2).long()),
        ValueError,
        r'the bank needs a gradient, which only engine="dense" gives',
    ),
    "alpha": (lambda: contrastive_loss(X, X, alpha=4.0), ValueError, "alpha is 4.0"),
    "alpha as text": (lambda: contrastive_loss(X, X, alpha="0.1"), TypeError, "alpha is '0.1'"),
    "no alpha": (lambda: contrastive_loss(X, labels=LABELS[:4], alpha=None), TypeError, "alpha is None"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
