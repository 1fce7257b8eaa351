"""e^z and logarithms of float32 lanes (`lanes.py`), in a few instructions and to the last digit but one."""

from typing import Any

import numpy as np

from bensemble_core.acquisition.fused.lanes import as_bits, as_float32, from_bits, jit, splat

# numba would take a Python number for float64.
ZERO, ONE, TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
LEAST = np.float32(1.2e-38)  # just above the smallest normal float32
LOG_2, LOG2_E = np.float32(0.6931471805599453), np.float32(1.4426950408889634)
LOG_2_HIGH, LOG_2_LOW = np.float32(0.693359375), np.float32(-2.1219444005469057e-4)  # nine bits, and the rest
ROUND = np.float32(12582912.0)  # 1.5 · 2²³: a whole number added to it is in its lowest bits
# Coefficients of p(r) in `exp`, and of the series in `_log`.
P1, P2, P3 = np.float32(0.9999997065), np.float32(0.4999914769), np.float32(0.1666763759)
P4, P5 = np.float32(0.0418981737), np.float32(0.0082903031)
A3, A5, A7, A9 = np.float32(2 / 3), np.float32(2 / 5), np.float32(2 / 7), np.float32(2 / 9)
MANTISSA = np.int32(23)  # bits of a float32's mantissa
ONE_BITS, ROOT_HALF_BITS = np.int32(0x3F800000), np.int32(0x3F3504F3)  # 1 and √½ as float32


@jit()
def exp(z: Any) -> Any:
    """e^z of float32 lanes for −87 ≤ z ≤ 87, or NaN; relative error below 2e-7, and e^0 is 1.

    z = n log 2 + r with n whole and |r| ≤ ½ log 2; e^r is 1 + r p(r), p of degree 4 with the smallest largest relative
    error there (9e-8), and n is added to the exponent's bits. log 2 is taken off in two parts, the first of so few
    bits that n of it is exact (Cody & Waite 1980): also on a processor without fused products, where one part would
    leave an error of 4e-8 |z|.
    """
    shifted = z * LOG2_E + ROUND
    n = shifted - ROUND
    r = z - n * LOG_2_HIGH - n * LOG_2_LOW
    p = (((r * P5 + P4) * r + P3) * r + P2) * r + P1
    return from_bits(as_bits(p * r + ONE) + (as_bits(shifted) << MANTISSA))


@jit()
def _log(k: Any, rest: Any) -> Any:
    """log of 2ᵏ (1 + rest), √½ ≤ 1 + rest < √2: log(1 + rest) = 2 artanh s, s = rest/(2 + rest), its series to s⁹."""
    s = rest / (rest + TWO)
    square = s * s
    series = ((square * A9 + A7) * square + A5) * square + A3
    return as_float32(k) * LOG_2 + (s * square * series + s * TWO)


@jit()
def log(v: Any) -> Any:
    """log v of normal float32 lanes v > 0; relative error below 2e-7."""
    k = (as_bits(v) - ROOT_HALF_BITS) >> MANTISSA
    return _log(k, from_bits(as_bits(v) - (k << MANTISSA)) - ONE)


@jit()
def log1p(t: Any) -> Any:
    """log(1 + t) of float32 lanes t ≥ 0, or NaN; relative error below 2e-7, however small t is."""
    k = (as_bits(t + ONE) - ROOT_HALF_BITS) >> MANTISSA
    scale = from_bits(splat(ONE_BITS) - (k << MANTISSA))  # 2⁻ᵏ
    return _log(k, t * scale + (scale - ONE))
