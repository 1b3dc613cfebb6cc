"""The networks of the distillation study and of representation learning: `build(name)` makes one.

>>> import torch
>>> net = build("resnet8x4")
>>> features, logits = net.both(torch.randn(2, 3, 32, 32))
>>> features.shape, logits.shape, net.num_features
(torch.Size([2, 256]), torch.Size([2, 100]), 256)
"""

from mlcpc.models.network import Network, placed
from mlcpc.models.published import load_published
from mlcpc.models.table import MODELS, build, canonical, counts

__all__ = ["MODELS", "Network", "build", "canonical", "counts", "load_published", "placed"]
