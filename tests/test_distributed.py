"""1 to 4 real gloo processes against one: values, parameters' gradients, queues and banks; batches of uneven length."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("ranks.py")


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_together_equal_one_process(world: int, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, output in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, output[-3000:]
        assert output.strip().endswith("all equal")
