"""`mlcpc train`, `distill`, `pretrain`, `probe`, `embed`, `show` as a person uses them, on scikit-learn's digits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mlcpc import checkpoints, data, loop, models
from mlcpc.classify import WEIGHTS, Training, accuracy, data_of, load_network, train
from mlcpc.cli import main
from mlcpc.config import InputError
from mlcpc.data import Batch
from mlcpc.distill.learner import Distiller, features_and_logits
from mlcpc.distill.memory import Contrast
from mlcpc.distill.run import Distillation, distill
from mlcpc.plan import Progress
from mlcpc.runs import Place, run_folder

TINY = ["--data", "digits", "--epochs", "1", "--limit", "128"]
CIFAR = Path(__file__).parents[2] / "shared" / "data" / "cifar-10-batches-bin"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not told where to, goes below the working directory."""
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> int:
    try:
        return main(list(words))
    except SystemExit as stop:
        return int(stop.code or 0)


def only(folder: Path) -> Path:
    (found,) = [path for path in folder.iterdir() if path.is_dir()]
    return found


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if SIGTERM came then."""
    original = loop._Run.step

    def step(self: Any, batch: Any, at: Progress) -> None:
        original(self, batch, at)
        if self.done == steps:
            self.asked.is_set = True

    monkeypatch.setattr(loop._Run, "step", step)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher, a student and an encoder, made by commands."""
    root = tmp_path_factory.mktemp("runs")
    where = ["--runs", str(root), "--device", "cpu"]
    assert run("train", "--network", "resnet14", *TINY, *where) == 0
    assert run("distill", "--teacher", "resnet14", "--student", "resnet8", "--negatives", "64", *TINY, *where) == 0
    small = ["--dim", "16", "--queue", "100", "--batch", "32", "--rate", "0.03"]
    assert run("pretrain", "--network", "resnet8", "--alpha", "10:0.1", *small, *TINY, *where) == 0
    return root


def test_a_teacher_is_trained_once_and_its_weights_are_kept(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = only(runs / "train")
    before = (folder / "result.json").stat().st_mtime_ns
    assert run("train", "--network", "resnet14", *TINY, "--runs", str(runs), "--device", "cpu") == 0
    assert "top-1" in capsys.readouterr().out
    assert (folder / "result.json").stat().st_mtime_ns == before
    result = json.loads((folder / "result.json").read_text())
    assert (result["parameters"], result["multiply_accumulates"]) == models.counts(models.build("resnet14", 10))
    net, name, classes, _ = load_network(folder / WEIGHTS)
    assert (name, len(classes)) == ("resnet14", 10)
    test = data.load("digits", train=False)
    assert isinstance(test, data.Images)
    from mlcpc import augment
    from mlcpc.classify import statistics

    plain = data.Loader(test, augment.plain(*statistics(data.load("digits"))))  # type: ignore[arg-type]
    with torch.autocast("cpu", torch.bfloat16):
        again = accuracy(models.placed(net, "cpu"), plain, torch.device("cpu"))
    assert again["top1"] == pytest.approx(result["top1"], abs=1e-6)


def test_distilling_took_that_teacher(runs: Path) -> None:
    result = json.loads((only(runs / "distill") / "result.json").read_text())
    teacher = json.loads((only(runs / "train") / "result.json").read_text())
    assert result["teacher_top1"] == pytest.approx(teacher["top1"], abs=1e-6)
    assert result["curve"][0]["estimate"] < result["curve"][0]["ceiling"]
    assert not list((only(runs / "distill")).glob("checkpoint-*"))


def test_an_encoder_is_probed_embedded_and_shown(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = str(only(runs / "pretrain"))
    where = ["--runs", str(tmp_path), "--device", "cpu"]
    probe = ["probe", "--run", encoder, "--data", "digits", "--limit", "128", "--epochs", "2", *where]
    assert run(*probe, "--no-augmented") == 0
    assert run(*probe) == 0
    for folder in (tmp_path / "probe").iterdir():
        result = json.loads((folder / "result.json").read_text())
        assert 0 < result["top1"] <= result["best_top1"] <= 1
        assert 0 < result["knn_top1"] <= 1
    out = tmp_path / "digits.npz"
    assert run("embed", encoder, "--data", "digits", "--test", "--out", str(out)) == 0
    with np.load(out) as table:
        assert table["features"].shape == (360, 64)
        assert (table["labels"] == data.load("digits", train=False).labels.numpy()).all()
    assert run("embed", encoder, "--data", "digits", "--out", str(tmp_path / "x.parquet")) == 0
    for what in ("neighbours", "map"):
        picture = tmp_path / f"{what}.png"
        assert run("show", what, encoder, "--images", "20", "--out", str(picture)) == 0
        assert picture.stat().st_size > 5000
    assert run("show", "augment", "--data", "digits", "--images", "2", "--out", str(tmp_path / "a.png")) == 0
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_photographs_of_ones_own_are_embedded(runs: Path, tmp_path: Path) -> None:
    from PIL import Image

    for i, size in enumerate([(50, 40), (33, 90)]):
        noise = np.random.default_rng(i).integers(256, size=(*size, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{i}.png")
    out = tmp_path / "own.npz"
    assert run("embed", str(only(runs / "pretrain")), "--data", str(tmp_path), "--out", str(out)) == 0
    with np.load(out) as table:
        assert table["features"].shape == (2, 64)
        assert [Path(name).name for name in table["names"]] == ["0.png", "1.png"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--network", "resnet21"], "there is no network 'resnet21': did you mean"),
        (["train", "--data", "cifar11"], "there is no data set or folder 'cifar11'"),
        (["train", "--epochs", "0", "--data", "digits"], "epochs is 0"),
        (["train", "--data", "digits", "--precision", "int8"], "precision is 'int8'"),
        (["distill", "--objective", "mlcp"], "objective is 'mlcp'"),
        (["distill", "--data", "digits", "--teacher-weights", "nowhere.pth"], "nowhere.pth"),
        (["distill", "--data", "digits", "--limit", "129"], "leave a last batch of one"),
        (["pretrain", "--data", "digits", "--limit", "20"], "fewer than a batch of 256: write --batch 16"),
        (["pretrain", "--method", "byol"], "method is 'byol'"),
        (["probe"], "no run is given"),
        (["probe", "--run", "nowhere", "--data", "digits"], "nowhere is no run"),
        (["embed", "nowhere", "--out", "x.csv"], "ends in .npz or .parquet"),
        (["show", "augment", "--recipe", "simclr"], "recipe is 'simclr'"),
        (["sweep", "figure1"], "target is 'figure1'"),
        (["sweep", "table1", "--scale", "tiny"], "scale of table1 is 'tiny'"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert line.startswith("mlcpc: ")
    assert message in line


def test_a_run_of_another_kind_and_a_wrong_teacher(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "other").mkdir()
    (runs / "other" / "result.json").write_text("{}")
    assert run("probe", "--run", str(runs / "other"), "--data", "digits") == 2
    assert "it is a run of another kind" in capsys.readouterr().err
    weights = str(only(runs / "train") / WEIGHTS)
    assert run("distill", "--teacher", "resnet20", "--teacher-weights", weights, *TINY) == 2
    assert "holds a resnet14, not a resnet20" in capsys.readouterr().err


def test_a_classifier_that_was_interrupted_ends_bit_for_bit_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16, channels last, augmentation and batch normalisation included."""
    config = Training("resnet8", "digits", 2, 32, limit=160)
    whole = train(config, Place(device="cpu", runs=tmp_path / "whole"))
    stop_after(7, monkeypatch)
    cut = Place(device="cpu", runs=tmp_path / "cut")
    with pytest.raises(loop.Interrupted):
        train(config, cut)
    monkeypatch.undo()
    resumed = train(config, cut)
    assert [row["loss"] for row in resumed["curve"]] == [row["loss"] for row in whole["curve"]]
    states = [
        load_network(run_folder(config, "train", tmp_path / w) / WEIGHTS)[0].state_dict() for w in ("whole", "cut")
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_any_two_networks_learn_from_each_other() -> None:
    """A student of ones own, without a method `both`; its features come closer to the teacher's."""
    torch.manual_seed(0)
    student = nn.Sequential(nn.Flatten(), nn.Linear(27, 16), nn.ReLU(), nn.Linear(16, 4))
    teacher = nn.Sequential(nn.Flatten(), nn.Linear(27, 8), nn.Tanh(), nn.Linear(8, 4))
    labels = torch.arange(40) % 4
    contrast = Contrast(16, 8, labels, "ml_cpc", 0.5, negatives=10, dim=8)
    optimizer = torch.optim.SGD([*student.parameters(), *contrast.parameters()], 0.1)
    learner = Distiller(student, teacher, contrast, optimizer, lambda net: {}, (0.0, 0.5, 1.0))
    images = torch.randn(40, 3, 3, 3)
    found: list[float] = []
    before = [p.clone() for p in teacher.parameters()]
    for step in range(60):
        at = Progress(step, 0, 60, 1)
        rows = torch.randperm(40, generator=torch.Generator().manual_seed(step))[:20]
        optimizer.zero_grad()
        loss, numbers = learner.loss(Batch(images[rows], labels[rows], rows), at)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        learner.after_step(Batch(images[rows], labels[rows], rows), at)
        found.append(float(numbers["estimate"]))
    assert np.mean(found[-10:]) > np.mean(found[:10]) + 0.3
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.parameters(), strict=True))


def test_what_a_distiller_cannot_do() -> None:
    student, teacher = (nn.Sequential(nn.Flatten(), nn.Linear(27, classes)) for classes in (4, 5))
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    with pytest.raises(InputError, match="there is no teacher"):
        Distiller(student, None, None, optimizer, lambda net: {}, (1.0, 0.5, 0.0))
    learner = Distiller(student, teacher, None, optimizer, lambda net: {}, (0.1, 0.9, 0.0))
    at = Progress(0, 0, 1, 1)
    many, one = (Batch(torch.zeros(n, 3, 3, 3), torch.zeros(n, dtype=torch.long), torch.arange(n)) for n in (2, 1))
    with pytest.raises(InputError, match="the teacher knows 5 classes and the student 4"):
        learner.loss(many, at)
    with pytest.raises(InputError, match="a batch of one image"):
        learner.loss(one, at)
    unnamed: Any = type("Batch", (), {"images": many.images, "labels": many.labels})()
    contrast = Contrast(27, 27, torch.arange(8) % 4, negatives=3, dim=4)
    banked = Distiller(student, student, contrast, optimizer, lambda net: {})
    with pytest.raises(InputError, match="the batches have no indices"):
        banked.loss(unnamed, at)
    with pytest.raises(InputError, match="no linear layer"):
        features_and_logits(nn.Flatten())


def test_kd_alone_is_a_tenth_of_cross_entropy_and_nine_of_kd() -> None:
    config = Distillation(objective="kd")
    assert config.weights == (0.1, 0.9, 0.0)
    assert Distillation(objective="ML-CPC").objective == "ml_cpc"
    torch.manual_seed(0)
    student, teacher = (nn.Sequential(nn.Flatten(), nn.Linear(27, 4)) for _ in range(2))
    learner = Distiller(
        student, teacher, None, torch.optim.SGD(student.parameters(), 1), lambda net: {}, config.weights
    )
    images, labels = torch.randn(6, 3, 3, 3), torch.arange(6) % 4
    loss, _ = learner.loss(Batch(images, labels, torch.arange(6)), Progress(0, 0, 1, 1))
    ours, theirs = student(images), teacher(images)
    p = (theirs / 4).softmax(1)
    kl = (p * (p.log() - (ours / 4).log_softmax(1))).sum(1).mean()
    assert loss.item() == pytest.approx(
        (0.1 * nn.functional.cross_entropy(ours, labels) + 0.9 * 16 * kl).item(), rel=1e-5
    )


def test_accuracy_counts_ties_and_nan_as_misses() -> None:
    test: Any = type("Whole", (), {"__len__": lambda self: 4})()
    images = torch.zeros(4, 1, 1, 1)
    test.whole = lambda device, batch: [Batch(images, torch.tensor([0, 1, 2, 3]), torch.arange(4))]
    logits = torch.tensor([[1.0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [5, 4, 3, 0, 0, 0], [0, 0, 0, torch.nan, 0, 0]])

    def net(x: Tensor) -> Tensor:
        return logits

    assert accuracy(net, test, torch.device("cpu")) == {"top1": 0.25, "top5": 0.5}


def test_weights_of_another_kind_of_file(tmp_path: Path) -> None:
    checkpoints.save(tmp_path / "x.safetensors", {"a": 1})
    with pytest.raises(InputError, match="holds no trained network"):
        load_network(tmp_path / "x.safetensors")


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR.exists(), reason="the real CIFAR-10 is not beside the checkout")
def test_an_epoch_on_real_images_is_worth_45_percent(tmp_path: Path) -> None:
    result = train(Training("resnet8", "cifar10", 1), Place(CIFAR, "cpu", tmp_path))
    assert result["top1"] > 0.45


def test_distilling_with_everything_else_as_negatives(tmp_path: Path) -> None:
    config = Distillation(
        "resnet8", "resnet8", "ml_cpc", "0.5", "digits", 1, negatives=0, same_class=True, limit=96, kd=0.5
    )
    said: list[str] = []
    result = distill(config, Place(device="cpu", runs=tmp_path), say=said.append)
    assert said[0].startswith("teacher resnet8: top-1")
    assert 0 <= result["top1"] <= 1


@pytest.mark.parametrize("objective", ["crd", "ml_cpc"])
def test_a_distillation_that_was_interrupted_ends_bit_for_bit_alike(
    objective: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Banks, negatives, projections and CRD's normaliser included."""
    weights = str(only(runs / "train") / WEIGHTS)
    config = Distillation(
        "resnet14", "resnet8", objective, "0.05", "digits", 2, 32, negatives=40, limit=160, teacher_weights=weights
    )
    whole = distill(config, Place(device="cpu", runs=tmp_path / "whole"), say=str)
    stop_after(7, monkeypatch)
    cut = Place(device="cpu", runs=tmp_path / "cut")
    with pytest.raises(loop.Interrupted):
        distill(config, cut, say=str)
    monkeypatch.undo()
    resumed = distill(config, cut, say=str)
    assert [row["loss"] for row in resumed["curve"]] == [row["loss"] for row in whole["curve"]]
    assert resumed["top1"] == whole["top1"]


def test_two_folders_are_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    for name in ("a", "b"):
        for part, kind in (("train", "cat"), ("train", "dog"), ("test", "cat"), ("test", "dog")):
            folder = tmp_path / name / part / kind
            folder.mkdir(parents=True)
            for i in range(4):
                noise = np.random.default_rng(i).integers(256, size=(32, 32, 3), dtype=np.uint8)
                Image.fromarray(noise).save(folder / f"{i}.png")
    words = ["train", "--network", "resnet8", "--epochs", "1", "--batch", "4", "--limit", "6", "--device", "cpu"]
    for name in ("a", "b"):
        where = ["--data", "folder", "--data-dir", str(tmp_path / name), "--runs", str(tmp_path / "runs")]
        assert run(*words, *where) == 0
    assert len(list((tmp_path / "runs" / "train").iterdir())) == 2
    assert run(*words, "--data", "folder") == 2
    assert "--data folder needs --data-dir" in capsys.readouterr().err


def test_a_limit_on_class_folders_takes_some_of_all_classes() -> None:
    from mlcpc.classify import limited

    files = data.Files([f"{i}" for i in range(100)], torch.arange(100) // 50, ("a", "b"), "own")
    assert len(limited(files, 10)) == 10
    assert set(limited(files, 10).labels.tolist()) == {0, 1}


def test_the_last_batch_feeds_every_piece_or_is_left_out() -> None:
    from mlcpc.plan import Plan

    assert Plan(1, 64, accumulate=2).steps(129) == 2
    assert Plan(1, 64, accumulate=2).steps(130) == 3
    assert Plan(1, 64).steps(129, ranks=2) == 2


def test_a_loss_divided_by_a_falling_alpha_is_no_divergence(tmp_path: Path) -> None:
    where = ["--runs", str(tmp_path), "--device", "cpu"]
    small = ["--dim", "16", "--queue", "100", "--batch", "32", "--rate", "0.003", "--epochs", "4", "--limit", "96"]
    assert run("pretrain", "--network", "resnet8", "--data", "digits", "--alpha", "10:0.02", *small, *where) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show"], "write mlcpc show augment, show neighbours or show map"),
        (["distill", "--alpha", "low"], "alpha is 'low'"),
        (["pretrain", "--alpha", "low"], "alpha is 'low'"),
        (["train", "--data", "imagenet"], "which ImageNet is not"),
    ],
)
def test_more_bad_input(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", '{"data": 3}', '{"data": "cifar10"'])
def test_a_damaged_config_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match="no run that was trained on images"):
        data_of(tmp_path)
