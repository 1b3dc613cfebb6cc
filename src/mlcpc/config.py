"""A frozen dataclass is the one description of a run: flags make it, JSON keeps it, and a hash of it names the run."""

import dataclasses
import hashlib
import json
from typing import Any

__all__ = ["InputError", "run_id", "to_dict"]


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
