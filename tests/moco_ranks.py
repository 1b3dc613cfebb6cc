"""What every rank of a test in tests/test_pretrain.py runs: `torchrun moco_ranks.py FOLDER`."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.plan import Progress
from mlcpc.pretrain.moco import MoCo
from mlcpc.ranks import Ranks
from test_pretrain import CASES, SMALL, Batch, encoder, learner, train


class Seeing(nn.Module):
    """Remembers which images it was shown: their first pixel is their number."""

    def __init__(self) -> None:
        super().__init__()
        self.net = encoder()

    def forward(self, images: Tensor) -> Tensor:
        self.seen = images[:, 0, 0, 0].tolist()
        result: Tensor = self.net(images)
        return result


def shuffled(ranks: Ranks) -> None:
    """Keys are made in batches other than the queries', together all of them, and come back in their place."""
    moco = MoCo(Seeing(), torch.zeros(2, 3, 4, 4).double(), SMALL, ranks)
    everyone = torch.randn(11, 2, 3, 4, 4, generator=torch.Generator().manual_seed(1)).double()
    everyone[:, :, 0, 0, 0] = torch.arange(11)[:, None]
    own = torch.arange(11)[:6] if ranks.rank == 0 else torch.arange(11)[6:]
    slow = moco.parts["key_encoder"], moco.parts["key_head"]
    wanted = F.normalize(slow[1](slow[0](everyone[:, 1])), dim=1)
    orders = []
    for step in (0, 1, 0):
        moco.fresh = []
        moco.loss(Batch(everyone[own], own % 2, own), Progress(0, step, 1, 2))
        torch.testing.assert_close(moco.fresh[0][0], wanted)
        assert moco.parts["encoder"].seen == own.tolist()
        mine = slow[0].seen
        assert len(mine) == len(own)
        assert set(mine) != set(own.tolist()), "each rank made its own keys"
        parts: list[list[float]] = [[], []]
        dist.all_gather_object(parts, mine)
        assert sorted(parts[0] + parts[1]) == list(range(11))
        orders.append(parts)
    assert orders[0] == orders[2] != orders[1]


if __name__ == "__main__":
    with Ranks("cpu") as ranks:
        shuffled(ranks)
        for name, settings in CASES.items():
            train(learner(settings, ranks), Path(sys.argv[1]) / name, ranks, batch=9)
        dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort the interpreter's own exit; done anyway
