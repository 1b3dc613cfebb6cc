"""ResNets for 32×32 images in three stages (He et al. 2016, §4.2): resnet20, resnet8x4 and their like."""

from torch import Tensor, nn

from mlcpc.models.blocks import Basic, stage
from mlcpc.models.network import Network, conv, he_normal, pooled, relu

__all__ = ["ThreeStageResNet"]


class ThreeStageResNet(Network):
    """`depth` = 6 k + 2 layers: k blocks of two in each stage. `base` is the width of the first stage.

    The stem is 16 wide, or 32 in the fourfold wide networks (`x4`), which widen in their first block.
    """

    def __init__(self, num_classes: int, *, depth: int, stem: int = 16, base: int = 16) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.num_features = 4 * base
        self.conv1 = conv(3, stem, 3)
        self.bn1 = nn.BatchNorm2d(stem)
        self.layer1 = stage(Basic, blocks, stem, base, 1, "downsample")
        self.layer2 = stage(Basic, blocks, base, 2 * base, 2, "downsample")
        self.layer3 = stage(Basic, blocks, 2 * base, 4 * base, 2, "downsample")
        self.fc = nn.Linear(self.num_features, num_classes)
        he_normal(self)

    def features(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        return pooled(self.layer3(self.layer2(self.layer1(x))))
