"""SimCLR in lightly's loop, with ML-CPC for its NTXentLoss: two moved and noisy views of a digit find each other.

    python examples/lightly_loop.py

The loop, and a batch of (views, targets, names), are lightly's; the two lines marked are all that changes. The package
itself is not needed.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader

from mlcpc.adapters import NTXent  # was: from lightly.loss import NTXentLoss


class SimCLR(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        convolutions = (nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU())
        self.backbone = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.projection_head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.projection_head(self.backbone(x))
        return z


def view(image: Tensor) -> Tensor:
    """Moved by up to one pixel each way, with noise."""
    down, right = torch.randint(3, (2,)).tolist()
    return F.pad(image, (1, 1, 1, 1))[:, down : down + 8, right : right + 8] + 0.1 * torch.randn(1, 8, 8)


def two_views(rows: list[tuple[Tensor, int]]) -> tuple[list[Tensor], Tensor, list[str]]:
    images, targets = zip(*rows, strict=True)
    views = [torch.stack([view(image) for image in images]) for _ in range(2)]
    return views, torch.tensor(targets), [""] * len(rows)


@torch.no_grad()
def recognised(model: SimCLR, images: Tensor) -> float:
    """The share of images of which one view is nearest to the other, among all."""
    f, g = (F.normalize(model(torch.stack([view(image) for image in images])), dim=1) for _ in range(2))
    return ((f @ g.T).argmax(1) == torch.arange(len(images))).float().mean().item()


def main(epochs: int = 10, batch: int = 64) -> float:
    torch.manual_seed(0)
    found = load_digits()
    images, labels = torch.from_numpy(found.images).float()[:, None] / 16, torch.from_numpy(found.target)
    rows = [(images[i], int(labels[i])) for i in range(1400)]
    dataloader = DataLoader(rows, batch, shuffle=True, drop_last=True, collate_fn=two_views)
    model = SimCLR()
    criterion = NTXent("ml_cpc", alpha=0.1, temperature=0.2)  # was: NTXentLoss(temperature=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = 0.0
        for (x0, x1), _targets, _names in dataloader:
            loss = criterion(model(x0), model(x1))
            total += loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {total / len(dataloader):.3f}")
    return recognised(model, images[1400:])


if __name__ == "__main__":
    print(f"of 397 new digits {main():.1%} are recognised in another view")
