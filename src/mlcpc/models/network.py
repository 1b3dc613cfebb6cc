"""What every network here is: features, then one linear layer."""

from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

__all__ = ["Network", "conv", "he_normal", "placed", "pooled", "relu"]


AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Network(nn.Module):
    """An image classifier that gives its penultimate features too. A kind of network says only what `features` are.

    Its last layer is the submodule `head_name`, as the published states call it.
    """

    num_features: int
    head_name: str = "fc"

    def features(self, x: Tensor) -> Tensor:
        """What the last layer reads, (n, num_features)."""
        raise NotImplementedError

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and logits, at the cost of one of them."""
        features = self.features(x)
        return features, self.head(features)

    def forward(self, x: Tensor) -> Tensor:
        return self.both(x)[1]

    @property
    def head(self) -> nn.Module:
        return self.get_submodule(self.head_name)

    def replace_head(self, head: nn.Module) -> None:
        """Put another last layer in, such as a projection: `net(x)` is then `head(net.features(x))`."""
        parent, _, name = self.head_name.rpartition(".")
        setattr(self.get_submodule(parent), name, head)


def placed(net: AnyModule, device: torch.device | str) -> AnyModule:
    """On a device, with channels last, which convolutions are fastest in."""
    return net.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def conv(channels: int, width: int, size: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the image's size at stride 1."""
    return nn.Conv2d(channels, width, size, stride, size // 2, groups=groups, bias=False)


def relu(x: Tensor) -> Tensor:
    """In place: only for what has just been made, by a normalisation or a sum."""
    return F.relu(x, inplace=True)


def pooled(x: Tensor) -> Tensor:
    """The mean over the image, (n, channels)."""
    return x.mean((2, 3))


def he_normal(net: nn.Module, linear_std: float | None = None) -> None:
    """Convolutions N(0, 2 / fan out), their biases 0; linear layers N(0, linear_std), or left as PyTorch has them."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear) and linear_std is not None:
            nn.init.normal_(module.weight, 0, linear_std)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
