"""The table of networks, and what can be asked of any of them: to be built, and to be counted."""

import copy
import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mlcpc.config import InputError
from mlcpc.models.blocks import Basic, Bottleneck
from mlcpc.models.mobilenet import MobileNetV2
from mlcpc.models.network import Network
from mlcpc.models.resnet import ResNet
from mlcpc.models.resnet_cifar import ThreeStageResNet
from mlcpc.models.shufflenet import ShuffleV1, ShuffleV2
from mlcpc.models.vgg import VGG
from mlcpc.models.wrn import WideResNet

__all__ = ["MODELS", "build", "canonical", "counts"]

_18: dict[str, Any] = {"block": Basic, "depths": (2, 2, 2, 2)}
_50: dict[str, Any] = {"block": Bottleneck, "depths": (3, 4, 6, 3)}
_IMAGENET: dict[str, Any] = {"stem": "imagenet", "projection": "downsample"}

#: name -> constructor(num_classes). The distillation study's names and state keys are those published with CRD.
MODELS: dict[str, Callable[[int], Network]] = {
    "resnet8": partial(ThreeStageResNet, depth=8),
    "resnet14": partial(ThreeStageResNet, depth=14),
    "resnet20": partial(ThreeStageResNet, depth=20),
    "resnet32": partial(ThreeStageResNet, depth=32),
    "resnet44": partial(ThreeStageResNet, depth=44),
    "resnet56": partial(ThreeStageResNet, depth=56),
    "resnet110": partial(ThreeStageResNet, depth=110),
    "resnet8x4": partial(ThreeStageResNet, depth=8, stem=32, base=64),
    "resnet32x4": partial(ThreeStageResNet, depth=32, stem=32, base=64),
    "wrn_16_1": partial(WideResNet, depth=16, widen=1),
    "wrn_16_2": partial(WideResNet, depth=16, widen=2),
    "wrn_40_1": partial(WideResNet, depth=40, widen=1),
    "wrn_40_2": partial(WideResNet, depth=40, widen=2),
    "vgg8": partial(VGG, depths=(1, 1, 1, 1, 1)),
    "vgg11": partial(VGG, depths=(1, 1, 2, 2, 2)),
    "vgg13": partial(VGG, depths=(2, 2, 2, 2, 2)),
    "vgg16": partial(VGG, depths=(2, 2, 3, 3, 3)),
    "vgg19": partial(VGG, depths=(2, 2, 4, 4, 4)),
    "MobileNetV2": MobileNetV2,
    "ShuffleV1": ShuffleV1,
    "ShuffleV2": ShuffleV2,
    "ResNet50": partial(ResNet, **_50, head_name="linear"),
    # representation learning: 3×3 stem, no max-pool
    "cifar_resnet18": partial(ResNet, **_18),
    "cifar_resnet50": partial(ResNet, **_50),
    # state keys as torchvision has them
    "imagenet_resnet18": partial(ResNet, **_18, **_IMAGENET),
    "imagenet_resnet50": partial(ResNet, **_50, **_IMAGENET),
}

#: other spellings in use, folded
_ALIASES = {
    "mobilehalf": "MobileNetV2",
    "shufflenetv1": "ShuffleV1",
    "shufflenetv2": "ShuffleV2",
    "resnet18cifar": "cifar_resnet18",
    "resnet50cifar": "cifar_resnet50",
    "resnet18imagenet": "imagenet_resnet18",
    "resnet50imagenet": "imagenet_resnet50",
}


def build(name: str, num_classes: int = 100) -> Network:
    """A new network, by its name in MODELS; case, `-` and `_` do not matter.

    >>> net = build("WRN-16-2")
    >>> net(torch.randn(2, 3, 32, 32)).shape, net.features(torch.randn(2, 3, 32, 32)).shape
    (torch.Size([2, 100]), torch.Size([2, 128]))
    """
    if num_classes < 1:
        raise InputError(f"num_classes is {num_classes}: a classifier has 1 class or more")
    return MODELS[canonical(name)](num_classes)


def canonical(name: str) -> str:
    """The name in MODELS that a spelling means: "WRN-40-2" is "wrn_40_2", "ShuffleNetV1" is "ShuffleV1"."""
    known = {_folded(model): model for model in MODELS} | _ALIASES
    if _folded(name) in known:
        return known[_folded(name)]
    close = [key for key in known if _folded(name) in key] if name else []
    close += difflib.get_close_matches(_folded(name), known, 4, 0.6)
    near = list(dict.fromkeys(known[key] for key in close))[:4]
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(MODELS)}"
    raise InputError(f"there is no network {name!r}: {hint}")


def counts(net: nn.Module, size: int = 32) -> tuple[int, int]:
    """Parameters, and the multiply-accumulates of convolutions and linear layers for one image of `size` pixels.

    >>> counts(build("resnet20"))
    (278324, 40818944)
    """
    total = 0

    def add(module: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal total
        if isinstance(module, nn.Conv2d | nn.Linear):
            total += output.numel() * module.weight[0].numel()

    shadow = copy.deepcopy(net).to("meta").eval()  # shapes only: nothing is computed, and the network is left alone
    for module in shadow.modules():
        module.register_forward_hook(add)
    with torch.no_grad():
        shadow(torch.empty(1, 3, size, size, device="meta", dtype=next(shadow.parameters()).dtype))
    return sum(parameter.numel() for parameter in net.parameters()), total


def _folded(name: str) -> str:
    return str(name).lower().replace("-", "").replace("_", "").replace("×", "x").replace(" ", "")
