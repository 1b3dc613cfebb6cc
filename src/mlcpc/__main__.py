"""`mlcpc` and `python -m mlcpc`: the command line, or how to get it."""

import gc
import os
import sys


def main() -> None:
    """Start the command line; say what to install where it is missing."""
    gc.freeze()  # torch is loaded and stays: the collector need not walk through it at every command's start
    try:
        from mlcpc.cli import main as start
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("mlcpc"):
            raise
        sys.exit(f"mlcpc: the command line needs {missing.name}: pip install 'mlcpc[cli]'")
    leave(start())


def leave(code: int) -> None:
    """End the process. One rank of several ends at once: gloo's threads sometimes abort Python's own way out."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
