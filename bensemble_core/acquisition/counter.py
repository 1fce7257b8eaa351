"""Random numbers that are a function of (seed, row): any chunking, order or number of workers gives the same bits.

The generator is splitmix64 (Steele, Lea & Flood 2014) read by position instead of in sequence: output i of the stream
that starts at s is mix(s + (i + 1)·γ), and s is a hash of the seed and of the stream's purpose.
"""

import numpy as np
import numpy.typing as npt

from bensemble_core.randomness import GAMMA, MASK, mix

# One stream for each purpose: a `power` selection must not reuse the noise of a `random` score of the same seed.
RANDOM_SCORE = 0x52414E444F4D
POWER_NOISE = 0x504F574552
SHORT_LIST = 0x53484F5254
JOINT_OUTCOMES = 0x4A4F494E54
SEEDING = 0x53454544
TIES = 0x54494553
RANDOM_PICKS = 0x5049434B53


def uniform(seed: int, rows: npt.NDArray[np.int64], stream: int) -> npt.NDArray[np.float64]:
    """One number in the open interval (0, 1) a row, with 52 random bits: [N] -> [N]."""
    key = mix(mix(np.array([seed & MASK], dtype=np.uint64)) ^ np.uint64(stream))
    bits = mix(key + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA))
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gumbel(seed: int, rows: npt.NDArray[np.int64], stream: int) -> npt.NDArray[np.float64]:
    """Standard Gumbel noise, −log(−log u): [N] -> [N]."""
    return -np.log(-np.log(uniform(seed, rows, stream)))
