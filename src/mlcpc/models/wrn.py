"""Wide residual networks (Zagoruyko & Komodakis 2016): normalisation and ReLU come before each convolution."""

from torch import Tensor, nn

from mlcpc.models.network import Network, conv, he_normal, pooled, relu

__all__ = ["WideResNet"]


class PreActivation(nn.Module):
    """x + branch(a) with a = relu(bn(x)); where the width changes, the projection of a instead of x."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = conv(channels, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.convShortcut = conv(channels, width, 1, stride) if channels != width else None

    def forward(self, x: Tensor) -> Tensor:
        active = relu(self.bn1(x))
        branch: Tensor = self.conv2(relu(self.bn2(self.conv1(active))))
        return branch + (x if self.convShortcut is None else self.convShortcut(active))


class Stage(nn.Module):
    """`depth` blocks; a module of its own because the states name them `layer`."""

    def __init__(self, depth: int, channels: int, width: int, stride: int) -> None:
        super().__init__()
        rest = (PreActivation(width, width, 1) for _ in range(depth - 1))
        self.layer = nn.Sequential(PreActivation(channels, width, stride), *rest)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y


class WideResNet(Network):
    """`depth` = 6 k + 4 layers: k blocks of two in each of three stages, `widen` times as wide as a ResNet's."""

    def __init__(self, num_classes: int, *, depth: int, widen: int) -> None:
        super().__init__()
        blocks, base = (depth - 4) // 6, 16 * widen
        self.num_features = 4 * base
        self.conv1 = conv(3, 16, 3)
        self.block1 = Stage(blocks, 16, base, 1)
        self.block2 = Stage(blocks, base, 2 * base, 2)
        self.block3 = Stage(blocks, 2 * base, 4 * base, 2)
        self.bn1 = nn.BatchNorm2d(self.num_features)
        self.fc = nn.Linear(self.num_features, num_classes)
        he_normal(self)
        nn.init.zeros_(self.fc.bias)

    def features(self, x: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return pooled(relu(self.bn1(x)))
