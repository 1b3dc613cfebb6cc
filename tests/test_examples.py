"""Every example runs, small, and does what it says; those that need another package are skipped without it."""

import contextlib
import importlib.util
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import mlcpc

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
NOTEBOOK = json.loads((FOLDER / "mutual_information.ipynb").read_text())


def example(name: str) -> ModuleType:
    """The script as a module; one that says what it needs is skipped in its own words."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit as needs:
        pytest.skip(f"{needs} (or make peers)")
    return module


# name: what to run it with, and what its result must pass (untrained: 0.12, 0.1, 0.60, 0.003, below 0.34)
SMALL: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "lightly_loop": ({"epochs": 4}, lambda recognised: recognised > 0.17),
    "open_clip_loop": ({"epochs": 8}, lambda accuracy: accuracy > 0.5),
    "metric_learning_trainer": ({"epochs": 2}, lambda precision: precision > 0.75),
    "lightning_module": ({"epochs": 4}, lambda accuracy: accuracy > 0.03),
    "sentence_retrieval": ({"epochs": 4}, lambda recall: recall > 0.38),
    "feature_selection": ({"columns": 4, "keep": 3, "steps": 60}, lambda r: r["mlcpc"] > 0.8),
    "ml_cpc_in_40_lines": ({"steps": 300}, lambda r: r["log m"] < r["estimate"] < r["truth"]),
}


def test_every_example_is_listed_and_short() -> None:
    assert set(SMALL) == set(SCRIPTS)
    for name in SCRIPTS:
        assert len((FOLDER / f"{name}.py").read_text().splitlines()) < 80, name


@pytest.mark.parametrize("name", SMALL)
def test_example(name: str) -> None:
    settings, passes = SMALL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the other packages' own
        result = example(name).main(**settings)
    assert passes(result), result


def test_the_odd_pair_tells_only_together() -> None:
    result = example("feature_selection").main(columns=1, keep=1, steps=60)
    assert result["this and that, alone"] < 0.05
    assert result["this and that, together"] > 0.2


def test_forty_lines_are_the_library() -> None:
    lines = (FOLDER / "ml_cpc_in_40_lines.py").read_text().split('"""', 2)[2].splitlines()
    assert len([line for line in lines if line.strip()]) <= 42  # two docstrings of one line among them
    scores = torch.randn(7, 7, dtype=torch.float64, requires_grad=True)
    for alpha in (0.2, 1.0, 3.0):
        ours = mlcpc.ml_cpc(mlcpc.in_batch(scores), alpha)
        theirs = example("ml_cpc_in_40_lines").ml_cpc(scores, alpha)
        torch.testing.assert_close(theirs, ours)
        torch.testing.assert_close(*(torch.autograd.grad(value, scores)[0] for value in (theirs, ours)))


def test_a_missing_package_is_said_in_one_line(tmp_path) -> None:
    """As a script, where the other package cannot be imported."""
    code = "import sys, runpy; sys.modules['pytorch_metric_learning'] = None; runpy.run_path(sys.argv[1])"
    script = str(FOLDER / "metric_learning_trainer.py")
    out = subprocess.run([sys.executable, "-c", code, script], capture_output=True, text=True, cwd=tmp_path)
    assert out.returncode == 1
    assert out.stderr.strip() == "this example needs pytorch-metric-learning: pip install pytorch-metric-learning"


def small_cells() -> list[str]:
    """The notebook's code, with fewer rows and steps."""
    cells = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert cells[0].startswith("ROWS = ")
    return ["ROWS, STEPS = 480, 20", *cells[1:]]


def test_the_notebook_is_one() -> None:
    assert NOTEBOOK["nbformat"] == 4
    assert all(cell["outputs"] == [] for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code")
    with contextlib.suppress(ModuleNotFoundError):
        nbformat = importlib.import_module("nbformat")
        nbformat.validate(nbformat.from_dict(NOTEBOOK))


def test_the_notebook_runs(tmp_path, monkeypatch) -> None:
    """By nbclient where that is installed, or cell after cell in one namespace."""
    monkeypatch.chdir(tmp_path)
    if importlib.util.find_spec("nbclient"):
        import nbclient
        import nbformat

        notebook = nbformat.from_dict(NOTEBOOK)
        for cell, source in zip([c for c in notebook.cells if c.cell_type == "code"], small_cells(), strict=True):
            cell.source = source
        nbclient.NotebookClient(notebook, timeout=120).execute()
        pictures = [o for c in notebook.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})]
        assert len(pictures) == 3
        return
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    names: dict[str, Any] = {}
    for cell in small_cells():
        exec(compile(cell.replace("%matplotlib inline\n", ""), "cell", "exec"), names)
    assert len(plt.get_fignums()) >= 2
    plt.close("all")
