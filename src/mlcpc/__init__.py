"""Multi-label contrastive predictive coding: contrastive losses and mutual-information bounds with a higher ceiling.

>>> import mlcpc, torch
>>> loss = mlcpc.ContrastiveLoss("ml_cpc", alpha=0.1)
>>> loss(torch.randn(16, 8), torch.randn(16, 8)).shape
torch.Size([])
"""

import importlib
from typing import Any

from mlcpc.bounds import GuaranteeWarning, alpha_min, ceiling, is_lower_bound
from mlcpc.contrastive import ContrastiveLoss, contrastive_loss
from mlcpc.objectives import cpc, loss, ml_cpc
from mlcpc.queues import Queue
from mlcpc.schedules import constant, geometric, parse_alpha
from mlcpc.scores import Scores, from_logits, in_batch, paired

__version__ = "0.1.0"

__all__ = [
    "ContrastiveLoss",
    "GuaranteeWarning",
    "MutualInformationEstimator",
    "Queue",
    "Scores",
    "alpha_min",
    "ceiling",
    "constant",
    "contrastive_loss",
    "cpc",
    "estimate_kl",
    "estimate_mi",
    "from_logits",
    "geometric",
    "in_batch",
    "is_lower_bound",
    "loss",
    "ml_cpc",
    "paired",
    "parse_alpha",
]

_ON_DEMAND = {
    "MutualInformationEstimator": "mlcpc.mi.estimator",
    "estimate_kl": "mlcpc.mi.kl",
    "estimate_mi": "mlcpc.mi.estimator",
}


def __getattr__(name: str) -> Any:
    """Estimators and networks load when first asked for, so `import mlcpc` stays light."""
    if name in ("models", "data"):
        return importlib.import_module(f"mlcpc.{name}")
    if name in _ON_DEMAND:
        return getattr(importlib.import_module(_ON_DEMAND[name]), name)
    raise AttributeError(f"module 'mlcpc' has no attribute {name!r}")
