"""ResNet-18 and ResNet-50 in four stages (He et al. 2016), for ImageNet and, with another stem, for CIFAR."""

from typing import Literal

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mlcpc.models.blocks import Block, stage
from mlcpc.models.network import Network, conv, he_normal, pooled, relu

__all__ = ["ResNet"]


class ResNet(Network):
    """`depths` are the numbers of blocks in the four stages.

    stem        "cifar": one 3×3 convolution, no max-pool; "imagenet": 7×7 with stride 2, then max-pool
    projection  what states call the projections
    head_name   what states call the last layer
    """

    def __init__(
        self,
        num_classes: int,
        *,
        block: type[Block],
        depths: tuple[int, int, int, int],
        stem: Literal["cifar", "imagenet"] = "cifar",
        projection: str = "shortcut",
        head_name: str = "fc",
    ) -> None:
        super().__init__()
        self.head_name = head_name
        self.pools = stem == "imagenet"
        self.conv1 = conv(3, 64, 7, 2) if self.pools else conv(3, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        up = block.expansion
        self.layer1 = stage(block, depths[0], 64, 64, 1, projection)
        self.layer2 = stage(block, depths[1], 64 * up, 128, 2, projection)
        self.layer3 = stage(block, depths[2], 128 * up, 256, 2, projection)
        self.layer4 = stage(block, depths[3], 256 * up, 512, 2, projection)
        self.num_features = 512 * up
        self.add_module(head_name, nn.Linear(self.num_features, num_classes))
        he_normal(self)

    def features(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        if self.pools:
            x = F.max_pool2d(x, 3, 2, 1)
        return pooled(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
