"""Checkpoints: one file each, tensors as safetensors and everything else as JSON in its header. No pickle is read.

A file is written whole or not at all. Two are kept, so that one that a disk has damaged (its checksum tells) is not the
end of a run.
"""

import json
import re
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlcpc.config import InputError
from mlcpc.runs import replacing

__all__ = ["finite", "load", "load_newest", "restore_optimizer", "save", "save_newest"]

_NAME = re.compile(r"checkpoint-(\d{9})\.safetensors")


def save(path: Path, tree: Any) -> None:
    """Write nested dicts, lists and tuples of tensors and plain values.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "x", {"w": torch.ones(2), "step": 3})
    ...     load(Path(folder) / "x")
    {'w': tensor([1., 1.]), 'step': 3}
    """
    from safetensors import torch as safetensors

    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encode(tree, tensors))
    content = safetensors.save(tensors, {"tree": text, "crc32": str(_checksum(text, tensors))})
    with replacing(path) as temporary:
        temporary.write_bytes(content)  # safetensors' own writer leaves a file that only we may read


def load(path: Path, device: torch.device | str = "cpu") -> Any:
    """What `save` wrote; InputError for a file that is damaged or of another kind."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - a handle, not a dict
        text = header["tree"]
        if header["crc32"] != str(_checksum(text, tensors)):
            raise InputError(
                f"{path} is damaged: its checksum differs. Delete it; the checkpoint before it will be used"
            )
        return _decode(json.loads(text), {key: tensor.to(device) for key, tensor in tensors.items()})
    except (SafetensorError, KeyError, TypeError, ValueError, OSError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a checkpoint of mlcpc, or is damaged ({error})") from error


def save_newest(folder: Path, step: int, tree: Any, keep: int = 2) -> None:
    """The state after `step` updates; older files beyond `keep` go."""
    save(folder / f"checkpoint-{step:09d}.safetensors", tree)
    for old in _found(folder)[:-keep]:
        old.unlink(missing_ok=True)


def load_newest(folder: Path, device: torch.device | str = "cpu") -> Any | None:
    """The newest checkpoint that is whole; None where there is none. A damaged one is warned about and passed over."""
    for path in reversed(_found(folder)):
        try:
            return load(path, device)
        except InputError as damaged:
            warnings.warn(f"{damaged}. Going back to an earlier one", RuntimeWarning, stacklevel=2)
            path.unlink(missing_ok=True)
    return None


def restore_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load it, with buffers in the memory format of their parameters: files keep values, not strides."""
    optimizer.load_state_dict(dict(state))
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def finite(parts: nn.Module) -> bool:
    """Whether every floating parameter and buffer is."""
    return all(bool(x.isfinite().all()) for x in parts.state_dict().values() if x.is_floating_point())


def _found(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(path for path in folder.glob("checkpoint-*.safetensors") if _NAME.fullmatch(path.name))


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> int:
    total = zlib.crc32(text.encode())
    for key in sorted(tensors):
        flat = tensors[key].detach().cpu().contiguous().flatten()
        total = zlib.crc32(flat.view(torch.uint8).numpy().data, total)
    return total


def _encode(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree in JSON: tensors by name, dicts as pairs (JSON would turn integer keys into strings)."""
    if isinstance(tree, Tensor):
        key = f"{len(tensors):06d}"
        tensors[key] = tree.detach().cpu().contiguous().clone()  # safetensors refuses tensors that share memory
        return {"tensor": key}
    if isinstance(tree, Mapping):
        return {"dict": [[key, _encode(value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        return {type(tree).__name__: [_encode(value, tensors) for value in tree]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"a checkpoint holds tensors and plain values, this is {tree!r}")


def _decode(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _decode(value, tensors) for key, value in content}
    values = [_decode(value, tensors) for value in content]
    return tuple(values) if kind == "tuple" else values
