"""Random numbers by key, not by turn: the same (seed, epoch, sample) draws the same on any rank and after any resume.

Imports torch and the standard library only.
"""

import hashlib

import torch
from torch import Tensor

__all__ = ["generator", "permutation", "seed_of", "uniform"]

Key = int | str


def seed_of(*key: Key) -> int:
    """63 bits that depend on every part of the key.

    >>> seed_of(1, "crop") == seed_of(1, "crop") != seed_of(1, "flip")
    True
    """
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8]) >> 1


def generator(*key: Key, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator of this key. On another kind of device it gives other numbers: see `uniform`."""
    return torch.Generator(device).manual_seed(seed_of(*key))


def permutation(n: int, *key: Key) -> Tensor:
    """An order of n samples, on the CPU."""
    return torch.randperm(n, generator=generator(*key))


def uniform(ids: Tensor, count: int, *key: Key, dtype: torch.dtype = torch.float32) -> Tensor:
    """(len(ids), count) numbers in [0, 1); row i depends on ids[i] and the key alone, whatever the device.

    float32 has 24 random bits, float64 has 53.

    >>> a, b = uniform(torch.tensor([5, 6, 7]), 4, 0), uniform(torch.tensor([7]), 4, 0)
    >>> torch.equal(a[2:], b)
    True
    """
    columns = torch.arange(1, count + 1, device=ids.device)
    x = _mix(ids.long()[:, None] + seed_of(*key)) + columns * _GOLDEN
    bits = 53 if dtype == torch.float64 else 24
    return (_mix(_mix(x)) & ((1 << bits) - 1)).to(dtype) * 2.0**-bits


_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # int64 sums and products wrap around, which is what a hash wants


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64."""
    x = (x ^ _shifted(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ _shifted(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Right, filling with zeros: torch's >> keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
