"""Two towers in open_clip's loop, with ML-CPC for its ClipLoss: pictures of digits and sentences about them.

    python examples/open_clip_loop.py

The model gives a dictionary with image_features, text_features and logit_scale, as open_clip's do; the two lines marked
are all that changes. The package itself is not needed.
"""

import math

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.adapters import Clip  # was: from open_clip import ClipLoss

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FORMS = ("a handwritten {}", "the digit {}", "somebody wrote {} here", "this is a {}", "{} in pencil")
WORDS = {word: i for i, word in enumerate(sorted({w for f in FORMS for n in NAMES for w in f.format(n).split()}))}


class TwoTowers(nn.Module):
    def __init__(self, d: int = 64) -> None:
        super().__init__()
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, d))
        self.text = nn.Sequential(nn.EmbeddingBag(len(WORDS), 64), nn.ReLU(), nn.Linear(64, d))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images: Tensor, texts: Tensor) -> dict[str, Tensor]:
        return {
            "image_features": F.normalize(self.visual(images), dim=1),
            "text_features": F.normalize(self.text(texts), dim=1),
            "logit_scale": self.logit_scale.exp(),
        }


def tokenize(sentences: list[str], length: int = 5) -> Tensor:
    """Words as numbers, the first repeated up to one length."""
    numbers = [[WORDS[word] for word in sentence.split()] for sentence in sentences]
    return torch.tensor([row + row[:1] * (length - len(row)) for row in numbers])


def main(epochs: int = 20, batch: int = 64) -> float:
    """The share of new pictures that find the sentence with their digit."""
    torch.manual_seed(0)
    found = load_digits()
    images, labels = torch.from_numpy(found.images).float() / 16, torch.from_numpy(found.target)
    model = TwoTowers()
    loss = Clip("ml_cpc", alpha=0.1)  # was: ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)
    for epoch in range(epochs):
        for rows in torch.randperm(1400).split(batch)[:-1]:
            forms = torch.randint(len(FORMS), (len(rows),)).tolist()
            captions = [FORMS[f].format(NAMES[labels[i]]) for f, i in zip(forms, rows.tolist(), strict=True)]
            optimizer.zero_grad()
            losses = loss(**model(images[rows], tokenize(captions)), output_dict=True)
            total = sum(losses.values())
            total.backward()
            optimizer.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))
        print(f"epoch {epoch}: loss {total.item():.3f}")
    with torch.no_grad():
        out = model(images[1400:], tokenize([FORMS[0].format(name) for name in NAMES]))
    return ((out["image_features"] @ out["text_features"].T).argmax(1) == labels[1400:]).float().mean().item()


if __name__ == "__main__":
    print(f"zero-shot accuracy {main():.1%}")
