"""What every rank of a test in tests/test_loop.py runs: `torchrun line.py FOLDER`."""

import sys
from pathlib import Path

from mlcpc.loop import fit
from mlcpc.plan import Plan, cosine
from mlcpc.ranks import Ranks
from test_loop import Line

if __name__ == "__main__":
    learner = Line()
    with Ranks("cpu") as ranks:
        rows = fit(
            learner, learner, Plan(4, 5, precision="float64", log_every=2), cosine(0.1), Path(sys.argv[1]), ranks
        )
    assert len(rows) == 4
