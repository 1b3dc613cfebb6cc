"""`mlcpc` and `python -m mlcpc`: the command line, or how to get it."""

import gc
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
    sys.exit(start())


if __name__ == "__main__":
    main()
