"""VGG (Simonyan & Zisserman 2015) for small images: batch normalisation, and one linear layer instead of three."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mlcpc.models.network import Network, he_normal, pooled, relu

__all__ = ["VGG"]

_WIDTHS = (64, 128, 256, 512, 512)


class VGG(Network):
    """`depths` are the numbers of 3×3 convolutions in the five blocks."""

    num_features = 512
    head_name = "classifier"

    def __init__(self, num_classes: int, *, depths: tuple[int, int, int, int, int]) -> None:
        super().__init__()
        channels = 3
        for i, (depth, width) in enumerate(zip(depths, _WIDTHS, strict=True)):
            self.add_module(f"block{i}", _block(depth, channels, width))
            channels = width
        self.classifier = nn.Linear(512, num_classes)
        he_normal(self, linear_std=0.01)

    def features(self, x: Tensor) -> Tensor:
        # The published networks pool a fourth time for images of 64 pixels, so that the last block sees 4×4 again.
        pools = 4 if x.shape[2] == 64 else 3
        for i in range(len(_WIDTHS)):
            x = relu(self.get_submodule(f"block{i}")(x))
            if i < pools:
                x = F.max_pool2d(x, 2)
        return pooled(x)


def _block(depth: int, channels: int, width: int) -> nn.Sequential:
    """Without the last ReLU. The convolutions have biases, which the normalisation undoes, as published."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Conv2d(channels if i == 0 else width, width, 3, padding=1), nn.BatchNorm2d(width)]
        layers += [nn.ReLU(inplace=True)] if i < depth - 1 else []
    return nn.Sequential(*layers)
