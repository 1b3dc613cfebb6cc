"""The two residual blocks that all but the wide networks are made of.

Published states call the projection beside the branch `downsample` or `shortcut`; it is an argument here.
"""

from torch import Tensor, nn

from mlcpc.models.network import conv, relu

__all__ = ["Basic", "Block", "Bottleneck", "stage"]


class Block(nn.Module):
    """relu(branch(x) + projection(x)); the projection is there where the branch changes the shape."""

    expansion: int

    def __init__(self, channels: int, width: int, stride: int, projection: str) -> None:
        super().__init__()
        self.projection = projection if stride != 1 or channels != width * self.expansion else None
        self.build(channels, width, stride)
        if self.projection:
            out = width * self.expansion
            self.add_module(self.projection, nn.Sequential(conv(channels, out, 1, stride), nn.BatchNorm2d(out)))

    def build(self, channels: int, width: int, stride: int) -> None:
        raise NotImplementedError

    def branch(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.branch(x) + (self.get_submodule(self.projection)(x) if self.projection else x))


class Basic(Block):
    """Two 3×3 convolutions."""

    expansion = 1

    def build(self, channels: int, width: int, stride: int) -> None:
        self.conv1 = conv(channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)

    def branch(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        return y


class Bottleneck(Block):
    """1×1 down, 3×3, 1×1 up fourfold; the 3×3 has the stride."""

    expansion = 4

    def build(self, channels: int, width: int, stride: int) -> None:
        self.conv1 = conv(channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)

    def branch(self, x: Tensor) -> Tensor:
        y = relu(self.bn2(self.conv2(relu(self.bn1(self.conv1(x))))))
        z: Tensor = self.bn3(self.conv3(y))
        return z


def stage(block: type[Block], depth: int, channels: int, width: int, stride: int, projection: str) -> nn.Sequential:
    """`depth` blocks, of which the first has the stride."""
    first = block(channels, width, stride, projection)
    rest = (block(width * block.expansion, width, 1, projection) for _ in range(depth - 1))
    return nn.Sequential(first, *rest)
