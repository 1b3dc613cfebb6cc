"""ML-CPC from scratch, in forty lines of torch: the loss, α's range and ceiling, and a batch that passes log m.

    python examples/ml_cpc_in_40_lines.py

Nothing of mlcpc is imported. tests/test_examples.py holds it to the library, value and gradient.
"""

import math

import torch
from torch import Tensor


def ml_cpc(scores: Tensor, alpha: float = 1.0) -> Tensor:
    """J_α in nats, from an n × n matrix of scores log g(x_i, y_j) whose diagonal holds the real pairs.

    One question over the whole batch: which n of the n·m pairs are real? So one normaliser, a sum over all pairs.
    """
    n = m = len(scores)
    real = torch.eye(n, dtype=torch.bool)
    weight = torch.where(real, alpha, (m - alpha) / (m - 1))  # α for a real pair, β for each of the m − 1 others
    everything = torch.logsumexp((scores + weight.log()).flatten(), 0)
    return scores.diagonal().mean() - everything + math.log(n * m)


def main(steps: int = 500, n: int = 16, d: int = 4, rho: float = 0.97) -> dict[str, float]:
    """Learn a critic of d pairs of Gaussians with correlation ρ, at the smallest α with a guarantee."""
    torch.manual_seed(0)
    smallest = n / (n * (n - 1) + 1)  # α_{m,n} for m = n
    logs = torch.nn.Parameter(torch.zeros(3, d))
    optimizer = torch.optim.Adam([logs], 0.05)
    estimates = []
    for _ in range(2 * steps):  # the second half is averaged
        x = torch.randn(n, d)
        y = rho * x + math.sqrt(1 - rho**2) * torch.randn(n, d)
        a, b, c = logs.exp()  # score(x, y) = Σ a·x·y − b·x²/2 − c·y²/2, the form that the true density ratio has
        scores = (a * x) @ y.T - ((b * x**2).sum(1)[:, None] + (c * y**2).sum(1)) / 2
        estimate = ml_cpc(scores, smallest)
        optimizer.zero_grad()
        (-estimate).backward()
        optimizer.step()
        estimates.append(estimate.item())
    truth = -d / 2 * math.log(1 - rho**2)
    return {"estimate": sum(estimates[steps:]) / steps, "truth": truth, "log m": math.log(n)}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:9} {value:.2f} nats")
