"""Retrieval with sentence-transformers and ML-CPC: which sentence documents this function of Python's library?

    python examples/sentence_retrieval.py

Needs sentence-transformers. Offline: the text is Python's own docstrings, the model an embedding for each piece of a
word, learnt from nothing. The line marked is all that changes.
"""

import importlib
import inspect
import sys

import torch

from mlcpc.adapters import SentencePairs

try:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ModuleNotFoundError:
    sys.exit("this example needs sentence-transformers: pip install sentence-transformers")

MODULES = (
    "os shutil statistics pathlib random heapq bisect tempfile socket subprocess zipfile tarfile decimal fractions"
)
MODULES += " email.utils inspect textwrap calendar datetime collections threading asyncio logging json difflib ast"


def pairs() -> list[tuple[str, str]]:
    """("shutil copytree", "Recursively copy a directory tree …"), one for each function that says what it does."""
    found = {}
    for name in MODULES.split():
        module = importlib.import_module(name)
        things = inspect.getmembers(module, inspect.isroutine)
        for key, value in inspect.getmembers(module, inspect.isclass):
            things += [(f"{key} {k}", thing) for k, thing in vars(value).items() if inspect.isroutine(thing)]
        for key, thing in things:
            text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
            if len(text.split()) > 4 and not key.startswith("_") and "__" not in key:
                found[text] = f"{name} {key}".replace(".", " ").replace("_", " ")
    return [(name, text) for text, name in found.items()]


def untrained(texts: list[str]) -> SentenceTransformer:
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=128)], device="cpu")


def main(epochs: int = 10, batch: int = 32) -> float:
    """The share of functions, unseen in training, whose sentence is among the ten nearest."""
    torch.manual_seed(0)
    rows = pairs()
    order = torch.randperm(len(rows)).tolist()
    new, seen = [rows[i] for i in order[:200]], [rows[i] for i in order[200:]]
    model = untrained([side for row in seen for side in row])
    loss = SentencePairs(model, "ml_cpc", alpha=0.1, scale=20.0)  # was: MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for epoch in range(epochs):
        for at in torch.randperm(len(seen)).split(batch)[:-1]:
            columns = zip(*(seen[i] for i in at.tolist()), strict=True)
            value = loss([model.preprocess(list(column)) for column in columns])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {value.item():.3f}")
    names, texts = (model.encode(list(side), convert_to_tensor=True) for side in zip(*new, strict=True))
    ranked = model.similarity(names, texts).topk(10).indices
    return (ranked == torch.arange(len(new))[:, None]).any(1).float().mean().item()


if __name__ == "__main__":
    print(f"the right sentence is among ten of 200 in {main():.1%}")
