"""`ContrastiveLoss`: from embeddings to a number to minimise."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from mlcpc.bounds import check_alpha
from mlcpc.objectives import OBJECTIVES, normalise
from mlcpc.schedules import Alpha, parse_alpha
from mlcpc.scores import Scores, check_float, check_same_device, in_batch, paired, widen

__all__ = ["ContrastiveLoss"]


class ContrastiveLoss(nn.Module):
    """ceiling − objective, of embeddings whose score is log g(x, y) = ⟨x, y⟩ / temperature.

    objective    "ml_cpc" (J_α, one question over the whole batch) or "cpc" (L_α; with α = 1 it is InfoNCE)
    alpha        a number, "0.05", or a schedule such as "10:0.1"; then set `loss.progress = step / total_steps`
    temperature  positive; embeddings are scaled to unit length first unless normalize=False

    >>> loss = ContrastiveLoss()
    >>> queries, keys = torch.randn(8, 16, requires_grad=True), torch.randn(8, 16)
    >>> loss(queries, keys).backward()
    """

    def __init__(
        self,
        objective: str = "ml_cpc",
        alpha: Alpha = 1.0,
        temperature: float = 0.07,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.objective = normalise(objective)
        self.alpha = parse_alpha(alpha)
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature} but must be positive: write, say, 0.07")
        self.temperature = temperature
        self.normalize = normalize
        #: training progress in [0, 1]; only a schedule needs it
        self.progress: float | None = None

    def forward(self, queries: Tensor, keys: Tensor, negatives: Tensor | None = None) -> Tensor:
        """The loss of (n, d) queries and their (n, d) keys.

        Without `negatives` each query is told from the other keys of the batch. `negatives` (k, d) are shared by all
        queries; (n, k, d) has k for each.
        """
        s = scores(queries, keys, negatives, self.temperature, self.normalize)
        alpha = self.current_alpha()
        check_alpha(alpha, s.mean_m, s.n, self.objective, stacklevel=4)
        return OBJECTIVES[self.objective](s, alpha)

    def current_alpha(self) -> float:
        """α at `progress`."""
        if self.progress is None:
            start, end = self.alpha(0.0), self.alpha(1.0)
            if start != end:
                raise ValueError(
                    f"alpha is a schedule from {start:g} to {end:g}: "
                    "set loss.progress = step / total_steps before each call"
                )
            return start
        return self.alpha(self.progress)

    def extra_repr(self) -> str:
        return f"{self.objective}, alpha={self.alpha}, temperature={self.temperature}"


def scores(queries: Tensor, keys: Tensor, negatives: Tensor | None, temperature: float, normalize: bool) -> Scores:
    """Dense scores of embeddings; positives are computed in float32 whatever the inputs."""
    given = {"queries": queries, "keys": keys} | ({} if negatives is None else {"negatives": negatives})
    for name, x in given.items():
        check_float(name, x)
    check_same_device(**given)
    if queries.ndim != 2 or queries.shape != keys.shape:
        raise ValueError(
            f"queries have shape {tuple(queries.shape)} and keys {tuple(keys.shape)}: both must be (n, d), "
            "row i of one belonging to row i of the other"
        )
    if normalize:
        queries, keys = F.normalize(widen(queries), dim=-1), F.normalize(widen(keys), dim=-1)
        negatives = None if negatives is None else F.normalize(widen(negatives), dim=-1)
    queries = queries / temperature
    if negatives is None:
        return in_batch(queries @ keys.T)
    pos = torch.linalg.vecdot(widen(queries), widen(keys))
    if negatives.ndim == 2 and negatives.shape[1] == queries.shape[1]:
        return paired(pos, queries @ negatives.T)
    if negatives.ndim == 3 and negatives.shape[::2] == queries.shape:
        return paired(pos, torch.einsum("nd,nkd->nk", queries, negatives))
    raise ValueError(
        f"negatives have shape {tuple(negatives.shape)}: write (k, d) to share them or (n, k, d) for k to each query, "
        f"with n, d = {tuple(queries.shape)}"
    )
