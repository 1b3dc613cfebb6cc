"""ML-CPC in a Lightning module, with the paper's curriculum for α: left halves of digits find their right halves.

    python examples/lightning_module.py

Needs lightning. On several devices the loss is that of the global batch: `configure_model` gives it the process group.
"""

import logging
import sys
import warnings

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mlcpc import ContrastiveLoss

try:
    import lightning
except ModuleNotFoundError:
    sys.exit("this example needs lightning: pip install lightning")


class Halves(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = (
            nn.Sequential(nn.Flatten(), nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64)) for _ in range(2)
        )

    def configure_model(self) -> None:
        group = torch.distributed.group.WORLD if torch.distributed.is_initialized() else None
        self.loss = ContrastiveLoss("ml_cpc", alpha="10:0.1", temperature=0.1, group=group)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        self.loss.progress = self.global_step / self.trainer.estimated_stepping_batches
        found = self.loss(self.left(batch[0][..., :4]), self.right(batch[0][..., 4:]), details=True)
        self.log_dict({"estimate": found.estimate, "ceiling": found.ceiling, "alpha": found.alpha}, prog_bar=True)
        loss: Tensor = found.loss
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 2e-3)


def main(epochs: int = 20, batch: int = 64, devices: int = 1) -> float:
    """The share of 397 new left halves that find their own right half among all of them."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    images = torch.from_numpy(load_digits().images).float() / 16
    loader = DataLoader(TensorDataset(images[:1400]), batch, shuffle=True, drop_last=True)
    model = Halves()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=devices,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few workers, short epochs: so small an example wants no advice
        trainer.fit(model, loader)
    with torch.no_grad():
        new = images[1400:]
        scores = nn.functional.normalize(model.left(new[..., :4]), dim=1)
        scores = scores @ nn.functional.normalize(model.right(new[..., 4:]), dim=1).T
    return (scores.argmax(1) == torch.arange(len(new))).float().mean().item()


if __name__ == "__main__":
    print(f"the right half comes first in {main():.1%} (by chance 0.3 %)")
