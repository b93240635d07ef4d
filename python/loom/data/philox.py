"""Random numbers by their place: Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011), as the engine draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["philox4x32", "uniforms"]

_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(
    counter: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]],
    key: tuple[int, int],
) -> NDArray[np.uint64]:
    """Returns the four words of each counter under a key.

    Args:
        counter: Four arrays of one shape that hold 32-bit words.
        key: Two 32-bit words.

    Returns:
        (4, ...) 32-bit words.
    """
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        left, right = a * _FACTORS[0], c * _FACTORS[1]
        a, b, c, d = (
            (right >> _HALF) ^ b ^ np.uint64(first),
            right & _LOW,
            (left >> _HALF) ^ d ^ np.uint64(second),
            left & _LOW,
        )
        first, second = (first + _STEPS[0]) & 0xFFFFFFFF, (second + _STEPS[1]) & 0xFFFFFFFF
    return np.stack([a, b, c, d])


def uniforms(seed: int, epoch: int, samples: NDArray[np.integer], count: int) -> NDArray[np.float32]:
    """Draws numbers from 0 to below 1 for each sample, which depend on nothing but the arguments.

    The counter is the sample's number (64 bits), the epoch and the place of four draws; the key is the seed.

    Args:
        seed: 64 bits.
        epoch: 32 bits.
        samples: (rows,) the samples' numbers.
        count: How many draws a sample has.

    Returns:
        (rows, count) multiples of 2**-24.
    """
    numbers = np.asarray(samples, np.uint64)[:, None]
    blocks = np.arange(-(-count // 4), dtype=np.uint64)[None, :]
    shape = np.broadcast_shapes(numbers.shape, blocks.shape)
    words = philox4x32(
        (
            np.broadcast_to(numbers & _LOW, shape),
            np.broadcast_to(numbers >> _HALF, shape),
            np.full(shape, np.uint64(epoch & 0xFFFFFFFF)),
            np.broadcast_to(blocks, shape),
        ),
        (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF),
    )
    flat = words.transpose(1, 2, 0).reshape(len(numbers), -1)[:, :count]
    drawn: NDArray[np.float32] = (flat >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    return drawn
