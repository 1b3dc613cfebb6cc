"""ML-CPC in pytorch-metric-learning's trainer: digits by their labels, several positives to an anchor.

    python examples/metric_learning_trainer.py

Needs pytorch-metric-learning. The line marked is all that changes; miners are left out, as the loss uses all pairs.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset

from mlcpc.adapters import MetricLearning

try:
    from pytorch_metric_learning import samplers, trainers
except ModuleNotFoundError:
    sys.exit("this example needs pytorch-metric-learning: pip install pytorch-metric-learning")


def main(epochs: int = 5, batch: int = 64) -> float:
    """Of the hundred old digits nearest to a new one, the share that has its label."""
    torch.manual_seed(0)
    found = load_digits()
    images, labels = torch.from_numpy(found.data).float() / 16, torch.from_numpy(found.target)
    dataset = TensorDataset(images[:1400], labels[:1400])
    trunk = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    trainer = trainers.MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.Adam(trunk.parameters(), 1e-3)},
        batch_size=batch,
        loss_funcs={"metric_loss": MetricLearning("ml_cpc", alpha=0.1)},  # was: losses.NTXentLoss(temperature=0.07)
        dataset=dataset,
        sampler=samplers.MPerClassSampler(labels[:1400], m=6, length_before_new_iter=1400),
        data_device=torch.device("cpu"),
        dataloader_num_workers=0,
    )
    trainer.train(num_epochs=epochs)
    trunk.eval()
    with torch.no_grad():
        new, old = (F.normalize(trunk(part), dim=1) for part in (images[1400:], images[:1400]))
    return (labels[(new @ old.T).topk(100).indices] == labels[1400:, None]).float().mean().item()


if __name__ == "__main__":
    print(f"{main():.1%} of the hundred nearest are the same digit")
