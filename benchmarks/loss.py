"""The loss layer against its floor and its peers: time (forward and backward) and memory.

    python -m benchmarks.loss [--quick]      writes results/bench/loss.csv, loss_memory.csv and loss.{svg,png}

The floor is the best tiled version of the matrix products that cannot be avoided: logits, d-queries and d-keys, or the
first two where keys are constants. Inputs are unit vectors, the queries already divided by τ = 0.07. One thread.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from benchmarks import peers
from benchmarks.measure import OUT, extra_memory, medians, peak, settle, write
from mlcpc import GuaranteeWarning, contrastive_loss

TAU = 0.07
Way = Callable[[], object]


def unit(n: int, d: int, dtype: torch.dtype, seed: int) -> Tensor:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed))
    return F.normalize(x, dim=1).to(device)


def pair(n: int, d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Unit keys, and queries divided by the temperature."""
    return (unit(n, d, dtype, 1) / TAU).to(dtype).requires_grad_(), unit(n, d, dtype, 2).to(dtype).requires_grad_()


def floor(q: Tensor, k: Tensor, height: int, width: int, constant: bool = False) -> None:
    """The products alone, into reused buffers."""
    q, k = q.detach(), k.detach()
    dq, dk = torch.zeros_like(q), torch.zeros_like(k)
    buffer = q.new_empty(height * width)
    for i in range(0, len(q), height):
        rows = q[i : i + height]
        for j in range(0, len(k), width):
            columns = k[j : j + width]
            s = buffer[: len(rows) * len(columns)].view(len(rows), len(columns))
            torch.mm(rows, columns.T, out=s)
            dq[i : i + height].addmm_(s, columns)
            if not constant:
                dk[j : j + width].addmm_(s.T, rows)


def floors(q: Tensor, k: Tensor, constant: bool = False) -> dict[str, Way]:
    """Several tilings; the fastest counts."""
    shapes = [(256, len(k)), (512, 1024), (1024, 1024), (256, 4096)]
    if q.is_cuda:
        shapes = [(len(q), len(k)), (8192, 8192), (4096, 16384)]
    shapes = [(min(h, len(q)), min(w, len(k))) for h, w in shapes if h * w <= 2**27]
    return {f"floor {h}x{w}": lambda h=h, w=w: floor(q, k, h, w, constant) for h, w in dict.fromkeys(shapes)}


def both(loss: Callable[[Tensor, Tensor], Tensor], q: Tensor, k: Tensor) -> Way:
    """Forward and backward."""
    leaves = [x for x in (q, k) if x.requires_grad]
    return lambda: torch.autograd.grad(loss(q, k), leaves)


def ours(objective: str, layout: Any = "one-way", **more: Any) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(q: Tensor, k: Tensor) -> Tensor:
        value: Tensor = contrastive_loss(
            q, k, objective=objective, alpha=0.5, temperature=1.0, normalize=False, layout=layout, **more
        )
        return value

    return loss


def in_batch(n: int, d: int, dtype: torch.dtype) -> dict[str, float]:
    """Everyone with in-batch negatives, one-way and symmetric."""
    q, k = pair(n, d, dtype)
    losses: dict[str, Any] = {
        "mlcpc ML-CPC": ours("ml_cpc"),
        "mlcpc CPC": ours("cpc"),
        "mlcpc CPC symmetric": ours("cpc", "symmetric"),
        "logits + cross entropy": peers.cross_entropy,
        "naive ML-CPC": peers.naive_ml_cpc,
        "published ML-CPC": peers.published_ml_cpc,
        "open_clip ClipLoss (symmetric)": peers.open_clip(1.0),
    }
    losses["torch linear_cross_entropy, chunked"] = peers.chunked_cross_entropy()
    if dtype == torch.float32:
        losses["info-nce-pytorch"] = peers.info_nce(1.0)
    if dtype == torch.float32 and n <= 4096 and d <= 128:
        losses["lightly NTXent (two-view)"] = peers.lightly(TAU)
        losses["mlcpc ML-CPC two-view"] = ours("ml_cpc", "two-view")
    ways = {name: both(loss, q, k) for name, loss in losses.items() if loss is not None}
    times = medians(floors(q, k) | ways)
    slow = peers.metric_learning(TAU) if dtype == torch.float32 and n <= 512 else None
    if slow is not None:  # O(n³): half a minute a call, so once and apart
        times |= medians({"pytorch-metric-learning NTXent (two-view)": both(slow, q, k)}, least=1)
    return relative(times)


def queue(n: int, k: int, d: int, dtype: torch.dtype) -> dict[str, float]:
    """MoCo: constant negatives that all queries share."""
    q, keys, negatives = pair(n, d, dtype)[0], unit(n, d, dtype, 2).to(dtype), unit(k, d, dtype, 3).to(dtype)

    def cross_entropy(q: Tensor, keys: Tensor) -> Tensor:
        logits = torch.cat([(q * keys).sum(1, keepdim=True), q @ negatives.T], 1)
        return F.cross_entropy(logits, torch.zeros(n, dtype=torch.long, device=q.device))

    def published(q: Tensor, keys: Tensor) -> Tensor:
        alpha = 0.5
        logits = torch.cat([(q * keys).sum(1, keepdim=True), q @ negatives.T], 1)
        pos, neg = logits[:, :1] + torch.tensor(alpha).log(), logits[:, 1:] + torch.tensor((k + 1 - alpha) / k).log()
        return torch.cat([pos, neg], 1).logsumexp(1).logsumexp(0) - logits[:, 0].mean()

    info = peers.info_nce(1.0) if dtype == torch.float32 else None
    losses: dict[str, Any] = {
        "mlcpc ML-CPC": ours("ml_cpc", negatives=negatives),
        "mlcpc CPC": ours("cpc", negatives=negatives),
        "logits + cross entropy": cross_entropy,
        "published ML-CPC": published,
        "info-nce-pytorch": None if info is None else lambda q, keys: info(q, keys, negatives),
    }
    ways = {name: both(loss, q, keys) for name, loss in losses.items() if loss is not None}
    return relative(medians(floors(q, negatives, constant=True) | ways))


def bank_ways(n: int, k: int, size: int, d: int) -> dict[str, Way]:
    """CRD: per-anchor indices into a bank, both directions; against gathering the vectors."""
    q, keys = pair(n, d, torch.float32)[0], unit(n, d, torch.float32, 2)
    banks = [unit(size, d, torch.float32, seed) for seed in (3, 4)]
    indices = torch.randint(size, (n, k), device=q.device)

    def gathered(q: Tensor) -> Tensor:
        total = q.new_zeros(())
        for each in banks:
            negatives = each[indices.view(-1)].view(n, k, d)
            neg = torch.bmm(negatives, q[:, :, None]).squeeze(2)
            total = total + F.cross_entropy(
                torch.cat([(q * keys).sum(1, keepdim=True), neg], 1), torch.zeros(n, dtype=torch.long, device=q.device)
            )
        return total

    def by_product(q: Tensor) -> Tensor:
        return sum(ours("cpc", negatives=each, indices=indices)(q, keys) for each in banks)  # type: ignore[return-value]

    return {
        "gather of vectors": lambda: torch.autograd.grad(gathered(q), q),
        "mlcpc": lambda: torch.autograd.grad(by_product(q), q),
    }


def bank(n: int, k: int, size: int, d: int) -> dict[str, float]:
    """× mlcpc."""
    times = medians(bank_ways(n, k, size, d))
    return {name: seconds / times["mlcpc"] for name, seconds in times.items()} | {"ms": times["mlcpc"] * 1e3}


def small(n: int, d: int, dtype: torch.dtype) -> dict[str, float]:
    """From raw embeddings, normalisation included, as a training step has it; × logits and cross entropy."""
    q, k = (unit(n, d, dtype, seed).to(dtype).requires_grad_() for seed in (1, 2))

    def cross_entropy(q: Tensor, k: Tensor) -> Tensor:
        return peers.cross_entropy(F.normalize(q, dim=1) / TAU, F.normalize(k, dim=1))

    ways: dict[str, Way] = {"logits + cross entropy": both(cross_entropy, q, k)}
    for name, objective in (("mlcpc ML-CPC", "ml_cpc"), ("mlcpc CPC", "cpc")):
        ways[name] = both(lambda q, k, o=objective: contrastive_loss(q, k, objective=o, alpha=0.5), q, k)
    times = medians(ways, 3.0)
    base = times["logits + cross entropy"]
    return {name: seconds / base for name, seconds in times.items()} | {"ms": base * 1e3}


def precision(n: int, d: int, dtype: torch.dtype) -> list[dict[str, object]]:
    """Relative error of the gradients, τ = 0.07 and easy positives; the inputs are the rounded ones for all."""
    q = unit(n, d, torch.float32, 1)
    k = F.normalize(q + 0.05 * unit(n, d, torch.float32, 2) * d**0.5, dim=1)
    found: list[dict[str, object]] = []
    for name, (loss, exact) in {
        "mlcpc ML-CPC": (ours("ml_cpc"), ours("ml_cpc", engine="dense")),
        "mlcpc CPC": (ours("cpc"), ours("cpc", engine="dense")),
        "naive ML-CPC": (peers.naive_ml_cpc, ours("ml_cpc", engine="dense")),
        "published ML-CPC": (peers.published_ml_cpc, ours("ml_cpc", engine="dense")),
    }.items():
        low = [x.to(dtype).requires_grad_() for x in (q / TAU, k)]
        wide = [x.detach().double().requires_grad_() for x in low]
        got, wanted = torch.autograd.grad(loss(*low), low), torch.autograd.grad(exact(*wide), wide)
        errors = [float((g.double() - w).norm() / w.norm()) for g, w in zip(got, wanted, strict=True)]
        shape = {"case": "precision", "n": n, "d": d, "dtype": str(dtype)[6:]}
        found.append(shape | {"way": name, "ratio": round(max(errors), 5), "of": "the gradient"})
    print("precision", {row["way"]: row["ratio"] for row in found}, flush=True)
    return found


def relative(times: dict[str, float]) -> dict[str, float]:
    """× the fastest floor, and that floor in ms."""
    base = min(seconds for name, seconds in times.items() if name.startswith("floor"))
    ways = {name: seconds / base for name, seconds in times.items() if not name.startswith("floor")}
    return ways | {"ms": base * 1e3}


MEMORY = {
    "mlcpc ML-CPC": ours("ml_cpc"),
    "mlcpc CPC": ours("cpc"),
    "mlcpc CPC symmetric": ours("cpc", "symmetric"),
    "logits + cross entropy": peers.cross_entropy,
    "naive ML-CPC": peers.naive_ml_cpc,
    "published ML-CPC": peers.published_ml_cpc,
    "torch linear_cross_entropy, chunked": peers.chunked_cross_entropy(),
    "open_clip ClipLoss (symmetric)": lambda q, k: peers.open_clip(1.0)(q, k),  # type: ignore[misc]
}


def memory(name: str, n: int, d: int) -> float:
    """MB beyond the inputs for one forward and backward, in this process."""
    if name.startswith("bank, "):
        small_bank, whole = bank_ways(8, 16, 1000, d), bank_ways(n, 16384, 50000, d)
        small_bank[name[6:]]()
        before = settle()
        whole[name[6:]]()
        return peak() - before
    q, k = pair(n, d, torch.float32)
    small_q, small_k = pair(1100, d, torch.float32)
    both(MEMORY[name], small_q, small_k)()  # libraries' own buffers
    before = settle()
    both(MEMORY[name], q, k)()
    return peak() - before


def rows(case: str, result: dict[str, float], unit_: str, **shape: Any) -> list[dict[str, object]]:
    ms = result.pop("ms")
    found = [
        {"case": case, **shape, "way": way, "ratio": round(r, 3), "of": unit_, "base_ms": round(ms, 3)}
        for way, r in result.items()
    ]
    print(f"{case} {shape} base {ms:.2f} ms: " + ", ".join(f"{way} {r:.2f}" for way, r in result.items()), flush=True)
    return found  # type: ignore[return-value]


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", GuaranteeWarning)
    if arguments[:1] == ["--memory"]:
        print(memory(arguments[1], int(arguments[2]), int(arguments[3])))
        return
    quick, gpu, f32, b16 = "--quick" in arguments, torch.cuda.is_available(), torch.float32, torch.bfloat16
    table: list[dict[str, object]] = []
    for dtype, sizes in ((f32, (32, 64, 128, 256, 512)), (b16, (128, 256, 512))):
        for n in sizes:
            table += rows("small", small(n, 128, dtype), "logits + cross entropy", n=n, d=128, dtype=str(dtype)[6:])
    cases = [(512, 128, f32), (2048, 128, f32), (4096, 128, f32), (8192, 128, f32), (4096, 512, f32)]
    cases += [(4096, 128, b16), (4096, 512, b16)]
    if gpu:
        cases = [(2048, 128, f32), (8192, 128, f32), (32768, 128, f32), (8192, 512, b16), (32768, 512, b16)]
    for n, d, dtype in cases[:2] if quick else cases:
        table += rows("in-batch", in_batch(n, d, dtype), "floor", n=n, d=d, dtype=str(dtype)[6:])
    k = 8192 if quick else 65536
    for dtype in (f32,) if quick else (f32, b16):
        table += rows("queue", queue(256, k, 128, dtype), "floor", n=256, k=k, d=128, dtype=str(dtype)[6:])
    shape = {"n": 64, "k": 2048 if quick else 16384, "size": 50000, "d": 128}
    table += rows("bank", bank(**shape), "mlcpc", **shape, dtype="float32")
    table += precision(1024 if quick else 4096, 128, b16)
    name = "loss_gpu" if gpu else "loss_quick" if quick else "loss"
    print(write(name, table))
    if not quick and not gpu:
        found: list[dict[str, object]] = []
        asked = [(way, n) for n in (2048, 4096, 8192) for way in MEMORY]
        for way, n in [*asked, ("bank, mlcpc", 64), ("bank, gather of vectors", 64)]:
            mb = extra_memory("benchmarks.loss", way, str(n), "128")
            found.append({"way": way, "n": n, "d": 128, "extra_mb": round(mb, 1)})
            print(found[-1], flush=True)
        print(write("loss_memory", found))
        draw(table, found)


def draw(table: list[dict[str, object]], found: list[dict[str, object]]) -> None:
    """Time over the floor, and extra memory, against the batch size."""
    from matplotlib.figure import Figure

    from mlcpc import plots

    with plots.style():
        figure = Figure(figsize=(13, 4.2))
        panels = figure.subplots(1, 2)
        sources = (
            (
                panels[0],
                [r for r in table if r["case"] == "in-batch" and r["d"] == 128 and r["dtype"] == "float32"],
                "ratio",
            ),
            (panels[1], found, "extra_mb"),
        )
        names = [str(name) for name in MEMORY]
        colours = dict(zip(names, [*plots.shades("ml_cpc", 3), "#999999", *plots.shades("cpc", 4)], strict=True))
        for panel, data, key in sources:
            for name in names:
                points = sorted((int(str(r["n"])), float(str(r[key]))) for r in data if r["way"] == name)
                panel.plot(*zip(*points, strict=True), marker="o", ms=4, color=colours[name], label=name)
            panel.set(xscale="log", yscale="log", xlabel="batch size n  (d = 128, float32, one CPU thread)")
            sizes = sorted({int(str(r["n"])) for r in data if r["way"] in names})
            panel.set_xticks(sizes, [str(n) for n in sizes])
            panel.minorticks_off()
        panels[0].set_yticks([1, 1.5, 2, 3, 4, 6, 8], ["1", "1.5", "2", "3", "4", "6", "8"])
        panels[1].set_yticks([5, 20, 100, 500, 2000], ["5", "20", "100", "500", "2000"])
        panels[0].set(title="Time, × the unavoidable matrix products")
        panels[1].set(title="Memory beyond the inputs, MB")
        panels[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        plots.save(figure, OUT, "loss")


if __name__ == "__main__":
    main(sys.argv[1:])
