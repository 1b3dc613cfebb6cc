"""Weights that others trained: checkpoints {"model": state} with the keys in use since CRD."""

import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlcpc.config import InputError
from mlcpc.models.network import Network
from mlcpc.models.table import MODELS, build, canonical

__all__ = ["load_published"]

State = dict[str, Tensor]
Shapes = dict[str, tuple[int, ...]]

_COUNTER = "num_batches_tracked"


def load_published(name: str, path: str | Path, num_classes: int = 100) -> Network:
    """The network with the weights of a checkpoint, in eval mode, on the CPU: a teacher.

    The file is what `torch.save({"model": net.state_dict(), ...})` writes. It is read with `weights_only=True`, so that
    it can run no code; every key must be there, and none besides.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"model": build("resnet8").state_dict(), "epoch": 240}, f"{folder}/ckpt_epoch_240.pth")
    ...     teacher = load_published("resnet8", f"{folder}/ckpt_epoch_240.pth")
    >>> teacher.training
    False
    """
    name = canonical(name)
    net = build(name, num_classes)
    state = _state(_read(Path(path)), path)
    ours, theirs = _shapes(net.state_dict()), _shapes(state)
    if ours != theirs:
        raise InputError(f"{path} {_misfit(name, ours, theirs, num_classes)}")
    # float64 stays: nothing of the checkpoint is rounded. Half precision becomes float32.
    floats = (value.dtype for value in state.values() if value.is_floating_point())
    net.to(reduce(torch.promote_types, floats, torch.float32))
    net.load_state_dict(state)
    return net.eval()


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"there is no file {path}: give the path of a checkpoint")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no checkpoint raise anything, from KeyError to RuntimeError
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        if refused:
            raise InputError(
                f"{path} holds a {refused[1]} beside tensors and plain values, and so might run code when loaded: "
                'refused. Where you trust it, save {"model": state_dict} alone'
            ) from error
        raise InputError(f"{path} is not a checkpoint that torch.load reads, or is damaged") from error


def _state(content: Any, path: str | Path) -> State:
    """The state in a checkpoint: under "model" (CRD) or "state_dict", or all of it (torchvision)."""
    if isinstance(content, Mapping):
        content = next((content[key] for key in ("model", "state_dict") if key in content), content)
    if not isinstance(content, Mapping) or not content or not all(_is_weight(*item) for item in content.items()):
        raise InputError(f'{path} holds no weights: a checkpoint is {{"model": state_dict}}, names with tensors')
    return {key.removeprefix("module."): value for key, value in content.items()}  # DataParallel's prefix


def _is_weight(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or not isinstance(value, Tensor) or value.layout != torch.strided:
        return False
    return value.is_floating_point() or key.endswith(_COUNTER)


def _shapes(state: Mapping[str, Tensor]) -> Shapes:
    """Without the counters of batches, which PyTorch adds where an old state lacks them."""
    return {key: tuple(value.shape) for key, value in state.items() if not key.endswith(_COUNTER)}


def _misfit(name: str, ours: Shapes, theirs: Shapes, num_classes: int) -> str:
    """What a state of these shapes is instead."""
    for other in (name, *MODELS):
        classes = _classes(other, theirs)
        if classes is not None and other == name:
            return f"has {classes} classes, not {num_classes}: write num_classes={classes}"
        if classes is not None:
            return f"holds a {other}, not a {name}: write load_published({other!r}, ..., num_classes={classes})"
    if lacking := sorted(ours.keys() - theirs.keys()):
        return f"does not fit {name}: it lacks {lacking[0]} and {len(lacking) - 1} other keys"
    if strange := sorted(theirs.keys() - ours.keys()):
        return f"does not fit {name}: it has {strange[0]} and {len(strange) - 1} other keys which {name} has not"
    key = next(key for key in ours if ours[key] != theirs[key])
    return f"does not fit {name}: its {key} has shape {theirs[key]}, not {ours[key]}"


def _classes(name: str, theirs: Shapes) -> int | None:
    """With how many classes the shapes are this network's; None where they never are."""
    with torch.device("meta"):
        net = build(name, 1)
    head = f"{net.head_name}.weight"
    if not theirs.get(head):
        return None
    classes = theirs[head][0]
    fitting = _shapes(net.state_dict()) | {head: (classes, net.num_features), f"{net.head_name}.bias": (classes,)}
    return classes if fitting == theirs else None
