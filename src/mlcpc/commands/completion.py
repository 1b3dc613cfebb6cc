"""`mlcpc completion`."""

from dataclasses import dataclass
from typing import Literal

import tyro

__all__ = ["Completion"]


@dataclass(frozen=True)
class Completion:
    """Print the script that teaches a shell mlcpc's commands and flags: eval "$(mlcpc completion bash)"."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """whose script to print"""
