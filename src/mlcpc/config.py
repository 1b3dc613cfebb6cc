"""A frozen dataclass is the one description of a run: flags make it, JSON keeps it, and a hash of it names the run."""

import dataclasses
import hashlib
import json
from typing import Any

__all__ = ["InputError", "flags", "run_id", "to_dict"]


class InputError(ValueError):
    """What a person gave is wrong; the command line says it in one line and exits with 2."""


def to_dict(config: Any) -> dict[str, Any]:
    """The config as JSON would give it back (tuples become lists)."""
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise TypeError(f"a config is an instance of a dataclass, this is {config!r}")
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return plain


def run_id(config: Any) -> str:
    """Ten hexadecimal digits that change when, and only when, the config does.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     seed: int = 0
    >>> run_id(Config()) == run_id(Config(0)) != run_id(Config(1))
    True
    """
    text = json.dumps([type(config).__name__, to_dict(config)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def flags(config: Any) -> list[str]:
    """The words on a command line that make this config: those of its fields that are not as by default.

    Fields of a config within it are flags of the same kind, without a prefix.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     batch_size: int = 8
    ...     fast: bool = False
    ...     seed: int = 0
    >>> flags(Config(64, True))
    ['--batch-size', '64', '--fast']
    """
    words: list[str] = []
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            words += flags(value)
            continue
        if value == field.default:
            continue
        if isinstance(value, bool):
            words += [f"--{name}" if value else f"--no-{name}"]
        else:
            words += [f"--{name}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return words
