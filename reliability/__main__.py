"""`python -m reliability [NAME] [--minutes M]`: campaigns, one after the other; 1 where one found a defect."""

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

from reliability import __doc__ as about
from reliability.record import ROOT, write

SHARES = {"hostile": 3.0, "faults": 2.0, "crash": 5.0, "soak": 3.0, "numerics": 2.0}
"""of the minutes, where all run; numerics last, as it computes here and the others fork from here"""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reliability", description=about)
    parser.add_argument("name", nargs="?", choices=SHARES, help="one campaign; all without")
    parser.add_argument("--minutes", type=float, default=15.0, help="for all that run")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reliability", help="where the findings go")
    parser.add_argument("--work", type=Path, help="keep what the campaigns worked with here")
    asked = parser.parse_args(words)
    names = [asked.name] if asked.name else list(SHARES)
    total, bad = sum(SHARES[name] for name in names), 0
    for name in names:
        campaign = importlib.import_module(f"reliability.{name}")
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mlcpc-reliability-") as folder:
            found = campaign.run(asked.minutes * SHARES[name] / total, (asked.work or Path(folder)) / name)
        path = write(name, found, time.monotonic() - started, asked.out)
        print(f"{name}: {found['summary']} ({path})", flush=True)
        for failure in found["failures"]:
            print(f"  FAILED {failure}", flush=True)
        bad += bool(found["failures"])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
