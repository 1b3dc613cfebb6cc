"""ML-CPC and CPC behind the call shapes of four libraries' contrastive losses; none of them is imported.

    lightly                    NTXent(...)(out0, out1)
    open_clip                  Clip(...)(image_features, text_features, logit_scale)
    pytorch-metric-learning    MetricLearning(...)(embeddings, labels)
    sentence-transformers      SentencePairs(model, ...)(sentence_features, labels)

Each takes `objective` and `alpha` first, with everything else as in its library; with objective="cpc" and alpha=1 the
first, second and fourth give that library's own number.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mlcpc.contrastive import ContrastiveLoss
from mlcpc.queues import Queue
from mlcpc.schedules import Alpha

__all__ = ["Clip", "MetricLearning", "NTXent", "SentencePairs"]


class NTXent(nn.Module):
    """lightly's NTXentLoss: two views against all others or, with a memory bank (length, dim), against the bank.

    Unlike lightly's, the bank is saved in checkpoints and no batch is cut where it wraps.

    >>> NTXent(alpha=0.5)(torch.randn(8, 4), torch.randn(8, 4)).shape
    torch.Size([])
    """

    def __init__(
        self,
        objective: str = "ml_cpc",
        alpha: Alpha = 1.0,
        temperature: float = 0.5,
        memory_bank_size: int | tuple[int, int] = 0,
        group: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(memory_bank_size, int):
            if memory_bank_size:
                raise ValueError(f"memory_bank_size is {memory_bank_size}: write (length, dim), such as (4096, 128)")
            self.queue = None
        else:
            self.queue = Queue(*memory_bank_size, random_start=True)
        layout: Any = "two-view" if self.queue is None else "one-way"
        self.loss = ContrastiveLoss(objective, alpha, temperature, layout=layout, group=group)
        self.group = group

    def forward(self, out0: Tensor, out1: Tensor) -> Tensor:
        """The loss of two views' embeddings, (n, d) each; the bank then takes the second."""
        if self.queue is None:
            value: Tensor = self.loss(out0, out1)
            return value
        value = self.loss(out0, out1, self.queue.keys().clone())
        if out0.requires_grad:  # training: evaluation leaves the bank alone
            self.queue.update(nn.functional.normalize(out1.detach().float(), dim=1), group=self.group)
        return value


class Clip(nn.Module):
    """open_clip's ClipLoss: features of unit length and the scale they are multiplied by, 1/τ.

    >>> x = nn.functional.normalize(torch.randn(8, 4), dim=1)
    >>> sorted(Clip(alpha=0.5)(x, x, torch.tensor(10.0), output_dict=True))
    ['contrastive_loss']
    """

    def __init__(self, objective: str = "ml_cpc", alpha: Alpha = 1.0, group: Any = None) -> None:
        super().__init__()
        self.loss = ContrastiveLoss(objective, alpha, layout="symmetric", normalize=False, group=group)

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor | float,
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
    ) -> Any:
        """The symmetric loss; a bias shifts all scores alike and so changes nothing."""
        value = self.loss(image_features * logit_scale, text_features, temperature=1.0)
        return {"contrastive_loss": value} if output_dict else value


class MetricLearning(nn.Module):
    """pytorch-metric-learning's (embeddings, labels): every pair of one label is positive, of two labels negative.

    Anchors without a positive are left out, as there. Miners' tuples are not taken: the loss uses all pairs.

    >>> MetricLearning(alpha=0.5)(torch.randn(8, 4), torch.arange(8) % 3).shape
    torch.Size([])
    """

    def __init__(self, objective: str = "ml_cpc", alpha: Alpha = 1.0, temperature: float = 0.07) -> None:
        super().__init__()
        self.loss = ContrastiveLoss(objective, alpha, temperature)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of one labelled set, or against references: row i of ref_emb then belongs to row i of embeddings."""
        if indices_tuple is not None:
            raise ValueError("indices_tuple is given, but this loss uses all pairs: leave the miner out")
        if (ref_emb is None) != (ref_labels is None):
            raise ValueError("ref_emb and ref_labels go together: give both or neither")
        if ref_labels is not None and not torch.equal(ref_labels, labels):
            raise ValueError("ref_labels differ from labels: give references whose row i has the label of row i")
        if ref_emb is None:
            _, inverse, count = torch.unique(labels, return_inverse=True, return_counts=True)
            paired = count[inverse] > 1
            embeddings, labels = embeddings[paired], labels[paired]
        value: Tensor = self.loss(embeddings, ref_emb, labels=labels)
        return value


class SentencePairs(nn.Module):
    """sentence-transformers' loss interface: anchors, positives and any columns of hard negatives.

    As there, every row's positive and every hard negative count as negatives for every other anchor.

    >>> loss = SentencePairs(model=None, alpha=0.5)
    >>> loss.compute_loss_from_embeddings([torch.randn(8, 4) for _ in range(3)]).shape
    torch.Size([])
    """

    def __init__(
        self,
        model: nn.Module | None,
        objective: str = "ml_cpc",
        alpha: Alpha = 1.0,
        scale: float = 20.0,
        group: Any = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.scale = scale
        self.loss = ContrastiveLoss(objective, alpha, 1 / scale, in_batch=True, group=group)

    def forward(self, sentence_features: Iterable[Mapping[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Embed each column of sentences, then the loss; labels are not used."""
        if self.model is None:
            raise ValueError("this loss has no model: give one, or call compute_loss_from_embeddings")
        columns = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.compute_loss_from_embeddings(columns, labels)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """The loss of columns (n, d): anchors, positives, then hard negatives."""
        if len(embeddings) < 2:
            raise ValueError(f"{len(embeddings)} column of sentences is given: write anchors and positives at least")
        anchors, positives, *hard = embeddings
        value: Tensor = self.loss(anchors, positives, torch.cat(hard) if hard else None)
        return value

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card records."""
        return {"objective": self.loss.objective, "alpha": str(self.loss.alpha), "scale": self.scale}
