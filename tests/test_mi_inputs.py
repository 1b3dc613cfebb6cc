"""What people hand to estimate_mi, and what scikit-learn expects of it."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mlcpc import MutualInformationEstimator, estimate_mi
from mlcpc.mi.estimator import mutual_info
from mlcpc.mi.intake import pair
from mlcpc.mi.tasks import TASKS, pairs

QUICK = {"fast": True, "steps": 150}


def sample(name: str, n: int, seed: int = 11):
    return TASKS[name].sample(n, torch.Generator().manual_seed(seed))


def test_every_container_gives_the_same_number() -> None:
    x, y = (side.double() for side in pairs(2).sample(300, torch.Generator().manual_seed(8)))
    frames = pd.DataFrame(x.numpy(), columns=["a", "b"]), pd.DataFrame(y.numpy(), columns=["c", "d"])
    settings = QUICK | {"steps": 50}
    values = {estimate_mi(a, b, **settings).lower_bound for a, b in ((x, y), (x.numpy(), y.numpy()), frames)}
    assert len(values) == 1


def test_mixed_columns_and_missing_values() -> None:
    g = np.random.default_rng(0)
    z = g.normal(size=400)
    frame = pd.DataFrame({"number": z, "word": np.where(z > 0, "up", "down"), "flag": g.random(400) < 0.5})
    left, right, warnings = pair(frame, z)
    assert left.values.shape == (400, 3)
    assert warnings == []
    frame.loc[:9, "number"] = np.nan
    with pytest.raises(ValueError, match=r"10 of 400 rows have missing values .* missing='drop'"):
        pair(frame, z)
    left, right, warnings = pair(frame, z, missing="drop")
    assert len(left.values) == len(right.values) == 390
    assert "10 of 400 rows were dropped" in warnings[0]


GOOD = torch.linspace(0, 1, 100)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.ones(100), GOOD, "column 0 of x is constant"),
        (GOOD[:40], GOOD[:40], "there are 40 usable rows"),
        (GOOD, GOOD[:90], "x has 100 rows and y 90"),
        (GOOD, GOOD.log(), "y has 1 infinite values"),
        (GOOD * math.nan, GOOD, "100 of 100 rows have missing"),
        (GOOD, [f"id {i}" for i in range(100)], "text where numbers are expected"),
        (GOOD, ["a", 1.0] * 50, "has numbers and text"),
        (GOOD, GOOD + 1j, "y is complex"),
        (GOOD, [1.0, 1j] * 50, "y has entries of type complex"),
        ({}, GOOD, "x has no columns"),
        (None, GOOD, "x is a NoneType but must have one row for each pair"),
        ("height", GOOD, "x is 'height': give the column itself"),
        (3.0, GOOD, "x is a float"),
        ([], [], "there are 0 usable rows"),
        ([[1.0, 2.0]] * 99 + [[1.0]], GOOD, "the rows of x have 1 to 2 entries"),
        ({"a": GOOD, "b": GOOD[:9]}, GOOD, "the columns of x have 9 to 100 rows"),
        (pd.DataFrame(np.zeros((100, 2)), columns=["a", "a"]), GOOD, "two columns of the name 'a'"),
        (pd.DataFrame({"day": pd.date_range("2020", periods=100)}), GOOD, "x\\['day'\\] holds dates"),
        (pd.DataFrame({"k": ["word"] * 100}), GOOD, "column k of x is constant \\('word'\\)"),
        (GOOD[:, None].to_sparse(), GOOD, "x is sparse"),
        ([b"a", b"b"] * 50, GOOD, "x has entries of type bytes"),
        (["1.5"] * 30 + [f"{i}" for i in range(69)] + ["oops"], GOOD, "for example 'oops'"),
        (np.ma.masked_less(GOOD.numpy(), 0.2), GOOD, "20 of 100 rows have missing"),
        (pd.Series([pd.NA] + [1, 2, 3] * 33, dtype="Int64"), GOOD, "1 of 100 rows have missing"),
    ],
)
def test_bad_input_is_one_clear_line(x, y, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        estimate_mi(x, y)
    assert "\n" not in str(caught.value)


def test_bad_settings() -> None:
    x, y = sample("2-pair 3×3", 200)
    for settings, message in (
        ({"method": "mime"}, "method is 'mime'"),
        ({"inputs": "ranks"}, "inputs is 'ranks'"),
        ({"missing": "fill"}, "missing is 'fill'"),
        ({"alpha": 1e-6}, "alpha is 1e-06 but is a lower bound only in"),
        ({"method": None}, "method is None"),
        ({"folds": 1}, "folds is 1 but"),
        ({"folds": 50}, "folds is 50, which leaves 4 of 200 rows in one: take at most 20"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"max_rows": None}, "max_rows is None"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate_mi(x, y, **settings)
    with pytest.raises(TypeError, match="encoder_x is a str but must be"):
        estimate_mi(x, y, encoder_x="resnet")
    assert estimate_mi(x, y, alpha=1e-6, any_alpha=True, **QUICK).alpha == 1e-6
    assert estimate_mi(x, y, method="MINE", fast=True, steps=20).method == "dv"


def test_copied_rows_are_noticed() -> None:
    x, y = sample("normal 1×1", 300)
    twice = estimate_mi(x.repeat(2, 1), y.repeat(2, 1), **QUICK)
    assert any("copies of other rows" in warning for warning in twice.warnings)


def test_many_rows_are_sampled_and_it_says_so() -> None:
    result = estimate_mi(*sample("normal 1×1", 3000), max_rows=500, **QUICK)
    assert result.n == 500
    assert any("500 of 3000 rows" in warning for warning in result.warnings)


def test_only_the_sample_of_many_rows_is_converted() -> None:
    """A column that counts what is asked of it: all is looked at in pieces, the sample alone as a whole."""
    asked = []

    class Column:
        shape = (250_000,)
        dtype = np.dtype(float)

        def __len__(self) -> int:
            return 250_000

        def __array__(self, dtype=None, copy=None):
            raise AssertionError("converted as a whole")

        def __getitem__(self, rows):
            asked.append(len(rows))
            return np.random.default_rng(len(asked)).normal(size=len(rows))

    left, right, warnings = pair(Column(), Column(), most=1000)
    assert left.values.shape == right.values.shape == (1000, 1)
    assert max(asked) == 100_000
    assert "1000 of 250000" in warnings[0]


def test_words_keep_their_levels_on_fresh_rows() -> None:
    """A word's indicator is the one it had when fitting, whatever else the fresh rows hold, and columns go by name."""
    g = np.random.default_rng(2)
    word, other = g.choice(list("abc"), 300), g.normal(size=300)
    y = (word == "c") + 0.1 * other
    estimator = MutualInformationEstimator(**QUICK).fit(pd.DataFrame({"word": word, "other": other}), y)
    some = pd.DataFrame({"other": other, "word": word})[150:]
    whole = estimator.pmi(pd.DataFrame({"word": word, "other": other}), y)
    torch.testing.assert_close(estimator.pmi(some, y[150:]), whole[150:])
    torch.testing.assert_close(
        estimator.pmi(some[some.word == "c"], y[150:][word[150:] == "c"]), whole[150:][word[150:] == "c"]
    )
    with pytest.raises(ValueError, match=r"x\['word'\] has 'd', which no row had"):
        estimator.pmi(some.assign(word="d"), y[150:])
    with pytest.raises(ValueError, match="x has no column 'word'"):
        estimator.score(some.rename(columns={"word": "ward"}), y[150:])
    with pytest.raises(ValueError, match="x has 300 infinite values, the first in column other"):
        estimator.score(pd.DataFrame({"word": word, "other": np.inf}), y)


def test_categories_of_numbers_are_categories() -> None:
    codes = pd.Series([1, 2, 3] * 40)
    assert pair(codes, GOOD.repeat(2)[:120])[0].values.shape == (120, 1)
    assert pair(codes.astype("category"), GOOD.repeat(2)[:120])[0].values.shape == (120, 3)


def test_encoders_for_rows_of_any_shape() -> None:
    g = torch.Generator().manual_seed(9)
    label = torch.randint(3, (600,), generator=g)
    pictures = torch.randn(600, 1, 6, 6, generator=g) + 3 * torch.eye(6)[label][:, None, :, None]
    encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 8))
    words = torch.nn.functional.one_hot(label, 3).float()
    before = [p.clone() for p in encoder.parameters()]
    estimator = MutualInformationEstimator(encoder_x=encoder, **QUICK).fit(pictures, words)
    assert 0.7 < estimator.result_.lower_bound < math.log(3) + 3 * estimator.result_.se
    assert all(torch.equal(a, b) for a, b in zip(before, encoder.parameters(), strict=True))
    assert estimator.pmi(pictures[:60], words[:60]).shape == (60,)
    assert estimator.score(pictures, words) == pytest.approx(estimator.result_.lower_bound, abs=0.3)


def test_an_encoder_on_one_side_leaves_the_other_as_usual() -> None:
    """Words, frames and any scale on the side without; NumPy's float64 in the encoder's own precision."""
    g = torch.Generator().manual_seed(9)
    pictures = torch.randn(400, 1, 4, 4, generator=g)
    up = pictures.mean((1, 2, 3)) > 0
    settings = {
        "encoder_x": torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 4)),
        "fast": True,
        "steps": 300,
    }
    frame = pd.DataFrame({"side": np.where(up, "up", "down"), "huge": 1e9 * torch.randn(400, generator=g).double()})
    result = estimate_mi(pictures.double().numpy(), frame, **settings)
    assert 0.2 < result.lower_bound < math.log(2) + 3 * result.se
    assert estimate_mi(pictures, up.long(), **settings).lower_bound > 0.2
    for wrong, message in (
        (torch.nn.Linear(7, 2), r"encoder_x does not take rows of x, \(n, 1, 4, 4\) of torch.float32: .*mat1 and mat2"),
        (torch.nn.Flatten(0), "encoder_x makes"),
    ):
        with pytest.raises(ValueError, match=message):
            estimate_mi(pictures, up.float(), encoder_x=wrong)
    with pytest.raises(TypeError, match="x has an encoder, so it must be a tensor"):
        estimate_mi(frame, pictures[:, 0, 0, 0], encoder_x=torch.nn.Linear(2, 2))


# --- scikit-learn's manners ------------------------------------------------------------------------------------------


def test_parameters_clone_and_pipeline() -> None:
    estimator = MutualInformationEstimator(seed=3, **QUICK)
    twin = clone(estimator)
    assert twin is not estimator
    assert twin.get_params() == estimator.get_params()
    assert "seed=3" in repr(twin)
    with pytest.raises(ValueError, match="'sede' is not a parameter"):
        estimator.set_params(sede=4)
    x, y = (side.numpy() for side in sample("2-pair 3×3", 400))
    pipeline = make_pipeline(StandardScaler(), twin).fit(x, y)
    assert pipeline[-1].result_.lower_bound > 0.5


def test_score_and_pmi_on_fresh_rows() -> None:
    estimator = MutualInformationEstimator(**QUICK).fit(*sample("2-pair 3×3", 1500))
    x, y = sample("2-pair 3×3", 800, seed=12)
    assert estimator.score(x, y) == pytest.approx(estimator.result_.lower_bound, abs=0.15)
    pmi = estimator.pmi(x, y)
    assert pmi.shape == (800,)
    assert float(pmi.mean()) == pytest.approx(1.022, abs=0.2)
    assert float(estimator.pmi(x, y.roll(1, 0)).mean()) < 0  # strangers look like strangers
    with pytest.raises(ValueError, match="x has 2 columns but the critics were fitted on 3"):
        estimator.score(x[:, :2], y)
    with pytest.raises(ValueError, match="not fitted yet"):
        MutualInformationEstimator().score(x, y)


def test_the_tools_that_ask_for_tags_work_too() -> None:
    x, y = (side.numpy() for side in sample("2-pair 3×3", 300))
    pipeline = make_pipeline(StandardScaler(), MutualInformationEstimator(fast=True, steps=30))
    assert (cross_val_score(pipeline, x, y, cv=2) > 0.3).all()


#: checks that ask for other words than ours, or for the opposite of what we promise
NOT_OURS = {
    "check_n_features_in_after_fitting": "wants scikit-learn's own sentence",
    "check_complex_data": "wants scikit-learn's own sentence",
    "check_estimators_empty_data_messages": "wants scikit-learn's own sentence",
    "check_fit2d_1sample": "wants scikit-learn's own sentence",
    "check_requires_y_none": "wants scikit-learn's own sentence",
    "check_fit1d": "one column as a vector is welcome here",
}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(monkeypatch) -> None:
    """On samples of ten to thirty rows, so the least number of rows is lowered for them."""
    monkeypatch.setattr("mlcpc.mi.intake.FEWEST", 5)
    monkeypatch.setattr("mlcpc.mi.estimator._FEWEST_HELD", 1)
    found = check_estimator(MutualInformationEstimator(fast=True, steps=3), on_fail=None, on_skip=None)
    status = {check["check_name"]: check["status"] for check in found}
    assert {name for name, result in status.items() if result == "failed"} == set(NOT_OURS)
    assert sum(result == "passed" for result in status.values()) >= 30


def test_mutual_info_has_a_number_for_each_column() -> None:
    g = np.random.default_rng(1)
    frame = pd.DataFrame({"a": g.normal(size=200), "word": g.choice(list("abc"), 200), "same": 1.0})
    found = mutual_info(frame, (frame.word == "a").to_numpy() + 0.1 * g.normal(size=200), steps=60)
    assert found.shape == (3,)
    assert found[1] > found[0]
    assert found[2] == 0


def test_select_k_best_finds_the_column_that_matters() -> None:
    g = np.random.default_rng(1)
    x = g.normal(size=(300, 3))
    chosen = SelectKBest(lambda a, b: mutual_info(a, b, steps=60), k=1).fit(x, x[:, 1] ** 2 + 0.1 * g.normal(size=300))
    assert chosen.get_support().tolist() == [False, True, False]
