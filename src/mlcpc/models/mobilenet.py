"""MobileNetV2 (Sandler et al. 2018) at half width, as the distillation study has it for 32×32 images."""

from torch import Tensor, nn

from mlcpc.models.network import Network, conv, he_normal, pooled

__all__ = ["MobileNetV2"]

#: expansion, width at full width, blocks, stride of the first
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):
    """1×1 up, 3×3 depthwise, 1×1 down without ReLU; added to its input where the shape allows.

    The 1×1 up is there at expansion 1 too, unlike in other versions of this network.
    """

    def __init__(self, channels: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.adds = stride == 1 and channels == width
        self.conv = nn.Sequential(
            *_conv_bn_relu(channels, inner, 1),
            *_conv_bn_relu(inner, inner, 3, stride, groups=inner),
            conv(inner, width, 1),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.adds else y


class MobileNetV2(Network):
    """`width` scales every layer but the last 1×1 convolution, which has 1280 channels."""

    num_features = 1280
    head_name = "classifier.0"

    def __init__(self, num_classes: int, *, width: float = 0.5) -> None:
        super().__init__()
        channels = int(32 * width)
        self.conv1 = _conv_bn_relu(3, channels, 3, 2)
        self.blocks = nn.Sequential()
        for expansion, full, depth, stride in _STAGES:
            blocks = nn.Sequential()
            for i in range(depth):
                blocks.append(InvertedResidual(channels, int(full * width), stride if i == 0 else 1, expansion))
                channels = int(full * width)
            self.blocks.append(blocks)
        self.conv2 = _conv_bn_relu(channels, self.num_features, 1)
        self.classifier = nn.Sequential(nn.Linear(self.num_features, num_classes))
        he_normal(self, linear_std=0.01)

    def features(self, x: Tensor) -> Tensor:
        return pooled(self.conv2(self.blocks(self.conv1(x))))


def _conv_bn_relu(channels: int, width: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(channels, width, size, stride, groups), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
