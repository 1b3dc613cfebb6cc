"""The adapters against what those libraries compute, by their published definitions; and against the packages
themselves where they are installed (`make peers`)."""

import importlib
import importlib.util
import pathlib
import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import reference
from mlcpc.adapters import Clip, MetricLearning, NTXent, SentencePairs

pytestmark = pytest.mark.filterwarnings("ignore::mlcpc.GuaranteeWarning")


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 5, requires_grad=True), torch.randn(6, 5, requires_grad=True)


def lightly_class() -> Any:
    """lightly's loss; its package imports torchvision, which the loss does not use."""
    if importlib.util.find_spec("lightly") is None:
        pytest.skip("lightly is not installed: make peers")
    names = [name for name in ("torchvision", "torchvision.ops") if name not in sys.modules]
    vision, ops = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
    vision.__path__, vision.ops = [], ops  # type: ignore[attr-defined]
    ops.StochasticDepth, ops.roi_align = type("StochasticDepth", (), {}), None  # type: ignore[attr-defined]
    sys.modules.update({name: {"torchvision": vision, "torchvision.ops": ops}[name] for name in names})
    try:
        return importlib.import_module("lightly.loss").NTXentLoss
    finally:
        for name in names:
            del sys.modules[name]


def open_clip_class() -> Any:
    spec = importlib.util.find_spec("open_clip")
    if spec is None or spec.origin is None:
        pytest.skip("open_clip is not installed: make peers")
    path = pathlib.Path(spec.origin).with_name("loss.py")
    loader = importlib.util.spec_from_file_location("open_clip_loss", path)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    return module.ClipLoss


def same(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    got, wanted = torch.autograd.grad(ours, inputs), torch.autograd.grad(theirs, inputs)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_ntxent_is_the_loss_over_two_views(pair) -> None:
    z = F.normalize(torch.cat(pair), dim=1)
    logits = (z @ z.T / 0.5).masked_fill(torch.eye(12, dtype=torch.bool), -torch.inf)
    target = (torch.arange(12) + 6) % 12
    same(NTXent("cpc")(*pair), F.cross_entropy(logits, target), *pair)


def test_ntxent_equals_lightly(pair) -> None:
    same(NTXent("cpc")(*pair), lightly_class()(temperature=0.5)(*pair), *pair)


def test_ntxent_with_a_bank_equals_lightly(pair) -> None:
    theirs, ours = lightly_class()(temperature=0.5, memory_bank_size=(8, 5)), NTXent("cpc", memory_bank_size=(8, 5))
    theirs(*pair)  # fills their bank's buffers with something
    ours.queue.stored.copy_(
        theirs.memory_bank.bank.T if theirs.memory_bank.bank.shape[0] == 5 else theirs.memory_bank.bank
    )
    ours_value = ours(*pair)
    torch.testing.assert_close(ours_value, theirs(*pair), rtol=1e-5, atol=1e-6)


def test_the_bank_grows_only_in_training_and_is_saved(pair) -> None:
    loss = NTXent(alpha=0.1, memory_bank_size=(8, 5))
    before = loss.queue.stored.clone()
    loss(pair[0].detach(), pair[1])
    torch.testing.assert_close(loss.queue.stored, before)
    loss(*pair).backward()
    torch.testing.assert_close(loss.queue.stored[:6], F.normalize(pair[1].detach(), dim=1))
    assert "queue.stored" in loss.state_dict()


def test_clip_is_the_symmetric_loss(pair) -> None:
    images, texts, scale = *pair, torch.tensor(8.0, requires_grad=True)
    logits, target = scale * images @ texts.T, torch.arange(6)
    wanted = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    same(Clip("cpc")(images, texts, scale), wanted, images, texts, scale)
    assert torch.equal(
        Clip("cpc")(images, texts, scale, output_dict=True)["contrastive_loss"], Clip("cpc")(images, texts, scale)
    )


def test_clip_equals_open_clip(pair) -> None:
    scale = torch.tensor(8.0, requires_grad=True)
    same(Clip("cpc")(*pair, scale), open_clip_class()()(*pair, scale), *pair, scale)


def test_metric_learning_drops_anchors_without_a_positive(pair) -> None:
    labels = torch.tensor([0, 1, 0, 1, 2, 1])
    kept = torch.tensor([0, 1, 2, 3, 5])
    for objective in ("cpc", "ml_cpc"):
        ours = MetricLearning(objective, alpha=0.5)(pair[0], labels)
        wanted = reference.contrastive(pair[0][kept].double(), labels=labels[kept], objective=objective, alpha=0.5)
        torch.testing.assert_close(ours.double(), wanted, rtol=1e-5, atol=1e-6)


def test_metric_learning_equals_the_package(pair) -> None:
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    labels = torch.tensor([0, 1, 0, 1, 2, 2])
    same(MetricLearning("cpc")(pair[0], labels), losses.NTXentLoss(temperature=0.07)(pair[0], labels), pair[0])


def test_metric_learning_in_its_trainer_shape(pair) -> None:
    """trainers call loss(embeddings, labels, indices_tuple); references come as ref_emb and ref_labels."""
    labels = torch.arange(6)
    value = MetricLearning("cpc")(pair[0], labels, None, pair[1], labels.clone())
    logits = F.normalize(pair[0], dim=1) @ F.normalize(pair[1], dim=1).T / 0.07
    same(value, F.cross_entropy(logits, labels), *pair)


class Bag(nn.Module):
    """The one thing sentence-transformers' losses ask of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(20, 5)

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": self.words(features["input_ids"])}


def test_sentence_pairs_is_multiple_negatives_ranking() -> None:
    model = Bag()
    columns = [{"input_ids": torch.randint(20, (6, 3))} for _ in range(3)]
    anchors, *documents = (F.normalize(model(column)["sentence_embedding"], dim=1) for column in columns)
    wanted = F.cross_entropy(20 * anchors @ torch.cat(documents).T, torch.arange(6))
    loss = SentencePairs(model, "cpc")
    same(loss(columns, None), wanted, model.words.weight)
    assert loss.get_config_dict() == {"objective": "cpc", "alpha": "1", "scale": 20.0}


def test_sentence_pairs_equals_the_package() -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    columns = [torch.randn(6, 5, requires_grad=True) for _ in range(3)]
    theirs = losses.MultipleNegativesRankingLoss(None).compute_loss_from_embeddings(columns, None)
    same(SentencePairs(None, "cpc").compute_loss_from_embeddings(columns), theirs, *columns)


BAD = {
    "bank size": (lambda: NTXent(memory_bank_size=64), r"write \(length, dim\)"),
    "miner": (lambda: MetricLearning()(torch.eye(4), torch.arange(4), (1, 2, 3, 4)), "leave the miner out"),
    "references": (lambda: MetricLearning()(torch.eye(4), torch.arange(4), ref_emb=torch.eye(4)), "go together"),
    "other labels": (
        lambda: MetricLearning()(torch.eye(4), torch.arange(4), None, torch.eye(4), torch.arange(4) + 1),
        "ref_labels differ",
    ),
    "no model": (lambda: SentencePairs(None)([], None), "has no model"),
    "one column": (lambda: SentencePairs(None).compute_loss_from_embeddings([torch.eye(3)]), "1 column"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
