"""ShuffleNet V1 and V2 (Zhang et al. 2018; Ma et al. 2018) for 32×32 images: a 1×1 stem, and no max-pool."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mlcpc.models.network import Network, conv, pooled, relu

__all__ = ["ShuffleV1", "ShuffleV2"]

_STEM = 24


class Grouped(nn.Module):
    """V1's unit: grouped 1×1, shuffle, depthwise 3×3, grouped 1×1. At stride 2 the pooled input is put beside it.

    The first unit's first convolution is not grouped: it reads the stem's 24 channels.
    """

    def __init__(self, channels: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        inner = width // 4
        self.stride, self.groups = stride, 1 if channels == _STEM else groups
        self.conv1 = conv(channels, inner, 1, groups=self.groups)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = conv(inner, inner, 3, stride, groups=inner)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = conv(inner, width, 1, groups=groups)
        self.bn3 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.channel_shuffle(relu(self.bn1(self.conv1(x))), self.groups)
        y = self.bn3(self.conv3(relu(self.bn2(self.conv2(y)))))
        return relu(torch.cat([y, F.avg_pool2d(x, 3, 2, 1)], 1) if self.stride == 2 else x + y)


class ShuffleV1(Network):
    """Three groups; stages of 4, 8 and 4 units."""

    num_features = 960
    head_name = "linear"

    def __init__(self, num_classes: int, *, groups: int = 3) -> None:
        super().__init__()
        self.conv1 = conv(3, _STEM, 1)
        self.bn1 = nn.BatchNorm2d(_STEM)
        self.layer1 = self._stage(4, _STEM, 240, groups)
        self.layer2 = self._stage(8, 240, 480, groups)
        self.layer3 = self._stage(4, 480, 960, groups)
        self.linear = nn.Linear(self.num_features, num_classes)

    @staticmethod
    def _stage(depth: int, channels: int, width: int, groups: int) -> nn.Sequential:
        first = Grouped(channels, width - channels, 2, groups)  # with its input beside it, `width` wide
        return nn.Sequential(first, *(Grouped(width, width, 1, groups) for _ in range(depth - 1)))

    def features(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        return pooled(self.layer3(self.layer2(self.layer1(x))))


class Split(nn.Module):
    """V2's unit: the second half of the channels goes through a branch, then the halves are shuffled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.conv1 = conv(half, half, 1)
        self.bn1 = nn.BatchNorm2d(half)
        self.conv2 = conv(half, half, 3, groups=half)
        self.bn2 = nn.BatchNorm2d(half)
        self.conv3 = conv(half, half, 1)
        self.bn3 = nn.BatchNorm2d(half)

    def forward(self, x: Tensor) -> Tensor:
        kept, y = x.chunk(2, 1)
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(y)))))
        return F.channel_shuffle(torch.cat([kept, relu(self.bn3(self.conv3(y)))], 1), 2)


class Down(nn.Module):
    """V2's unit that halves the image: both branches read every channel."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        half = width // 2
        self.conv1 = conv(channels, channels, 3, 2, groups=channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv(channels, half, 1)
        self.bn2 = nn.BatchNorm2d(half)
        self.conv3 = conv(channels, half, 1)
        self.bn3 = nn.BatchNorm2d(half)
        self.conv4 = conv(half, half, 3, 2, groups=half)
        self.bn4 = nn.BatchNorm2d(half)
        self.conv5 = conv(half, half, 1)
        self.bn5 = nn.BatchNorm2d(half)

    def forward(self, x: Tensor) -> Tensor:
        left = relu(self.bn2(self.conv2(self.bn1(self.conv1(x)))))
        y = self.bn4(self.conv4(relu(self.bn3(self.conv3(x)))))
        return F.channel_shuffle(torch.cat([left, relu(self.bn5(self.conv5(y)))], 1), 2)


class ShuffleV2(Network):
    """Width 1: stages of 116, 232 and 464 channels, each one `Down` and 3, 7 and 3 `Split`."""

    num_features = 1024
    head_name = "linear"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = conv(3, _STEM, 1)
        self.bn1 = nn.BatchNorm2d(_STEM)
        self.layer1 = nn.Sequential(Down(_STEM, 116), *(Split(116) for _ in range(3)))
        self.layer2 = nn.Sequential(Down(116, 232), *(Split(232) for _ in range(7)))
        self.layer3 = nn.Sequential(Down(232, 464), *(Split(464) for _ in range(3)))
        self.conv2 = conv(464, self.num_features, 1)
        self.bn2 = nn.BatchNorm2d(self.num_features)
        self.linear = nn.Linear(self.num_features, num_classes)

    def features(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return pooled(relu(self.bn2(self.conv2(x))))
