"""The compiled part of `kernels.py`, imported there when it is first needed: numba, and seconds to compile once.

Logits [M, N, C] -> eight statistics of each row. A block of rows is turned, member by member, so that neighbouring
rows lie next to one another; every loop then runs over the rows of a block and becomes vector instructions, though C
is small, and all that is in use stays in the nearest cache. What a row gets depends on that row alone: no sum runs
across rows, and a block is always whole (its last row is repeated), so that each row meets the same instructions.

Members are normalised with z_c = l_c − max l, Z = Σ e^z_c, p_c = e^z_c / Z and H[p] = log Z − Σ p_c z_c. z and e^z are
float32, all else is float64. Spreads are taken about the first member's p, so that members that agree have a spread of
exactly 0, and then a mutual information of exactly 0.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[Any]  # [C, BLOCK] or [BLOCK] where nothing else is said
F = TypeVar("F", bound=Callable[..., Any])

BLOCK = 64  # rows; a multiple of every vector length
TINY = 1e-300
LOG_2 = 0.6931471805599453
ROUND = 6755399441055744.0  # 1.5 · 2⁵²: a whole number added to it is in its lowest bits
ROUND_BITS = 0x4338000000000000
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD

# Constants of the float32 exponential; numba would take a Python number for float64.
ZERO, ONE = np.float32(0.0), np.float32(1.0)
FLOOR = np.float32(-87.0)  # e^−87 is 1.6e-38, next to the smallest normal float32; what is below counts as 0
LOG2_E_32 = np.float32(1.4426950408889634)
ROUND_32 = np.float32(12582912.0)  # 1.5 · 2²³
LOG_2_HIGH = np.float32(0.693359375)  # nine bits: its product with a whole number is exact
LOG_2_LOW = np.float32(-2.12194440e-4)
Q0, Q1, Q2 = np.float32(0.4999999344777535), np.float32(0.16666520631484608), np.float32(0.04166838804859857)
Q3, Q4 = np.float32(0.008368716907260586), np.float32(0.0013814598592916188)


def _compiled(signature: str | None = None, *, cache: bool = False) -> Callable[[F], F]:
    """`contract` alone of the fast-math flags: a product and a sum may be one instruction, NaN and order are kept."""

    def compile_it(function: F) -> F:
        found: Any = numba.njit(signature, fastmath={"contract"}, nogil=True, error_model="numpy", cache=cache)(
            function
        )
        return cast(F, found)

    return compile_it


def _cached(signature: str) -> Callable[[F], F]:
    """Kept on disk where numba finds a folder it may write to (NUMBA_CACHE_DIR, beside this file, the user's own)."""

    def compile_it(function: F) -> F:
        try:
            return _compiled(signature, cache=True)(function)
        except (RuntimeError, OSError):  # a read-only installation, or a full disk: compiled once a process
            return _compiled(signature)(function)

    return compile_it


@_compiled()
def exp(z: Any) -> Any:
    """e^z in float32 for −87 ≤ z ≤ 87, or NaN; relative error below 1.2e-7.

    z = n log 2 + r with n whole and |r| ≤ ½ log 2; e^r is 1 + r + r² q(r), q of degree 4 with the smallest largest
    relative error there (3e-9), and n is added to the exponent's bits.
    """
    shifted = z * LOG2_E_32 + ROUND_32
    n = shifted - ROUND_32
    r = (z - n * LOG_2_HIGH) - n * LOG_2_LOW
    q = (((Q4 * r + Q3) * r + Q2) * r + Q1) * r + Q0
    value = (q * r + ONE) * r + ONE
    exponent = np.int32(np.float32(shifted).view(np.int32) << np.int32(23))
    return np.int32(np.float32(value).view(np.int32) + exponent).view(np.float32)


@_compiled()
def log(v: Any) -> Any:
    """log v for normal float64 v > 0, or NaN; error below 1e-12, relative to the result near v = 1.

    v = 2ᵏ m with √½ ≤ m < √2; log m = 2 artanh s with s = (m − 1)/(m + 1), as its series to s¹⁵.
    """
    bits = np.float64(v).view(np.int64)
    k = (bits - ROOT_HALF_BITS) >> 52
    m = np.int64(bits - (k << 52)).view(np.float64)
    exponent = np.int64(k + ROUND_BITS).view(np.float64) - ROUND
    s = (m - 1.0) / (m + 1.0)
    square = s * s
    series = 1 / 15
    series = series * square + 1 / 13
    series = series * square + 1 / 11
    series = series * square + 1 / 9
    series = series * square + 1 / 7
    series = series * square + 1 / 5
    series = series * square + 1 / 3
    return exponent * LOG_2 + 2.0 * (s + s * square * series)


@_compiled()
def _turn(block: Floats, x: Floats) -> None:
    """A member's rows [BLOCK or fewer, C] as columns, the last one repeated."""
    if block.shape[0] == BLOCK:
        for c in range(x.shape[0]):
            for r in range(BLOCK):
                x[c, r] = block[r, c]
    else:
        for c in range(x.shape[0]):
            for r in range(BLOCK):
                x[c, r] = block[min(r, block.shape[0] - 1), c]


@_compiled()
def _find_peaks(x: Floats, peak: Floats, winner: Floats) -> None:
    """The largest logit and its class, the lower of two that are equal."""
    for r in range(BLOCK):
        peak[r] = x[0, r]
        winner[r] = 0
    for c in range(1, x.shape[0]):
        for r in range(BLOCK):
            higher = x[c, r] > peak[r]
            winner[r] = np.int32(c) if higher else winner[r]
            peak[r] = x[c, r] if higher else peak[r]


@_compiled()
def _exponentiate(x: Floats, peak: Floats, e: Floats) -> None:
    """x becomes z; e is its exponential, 0 below the floor."""
    for c in range(x.shape[0]):
        for r in range(BLOCK):
            z = x[c, r] - peak[r]
            below = z < FLOOR  # false for NaN, which so stays
            z = FLOOR if below else z
            x[c, r] = z
            e[c, r] = ZERO if below else exp(z)


@_compiled()
def _normalise(weight: float, z: Floats, e: Floats, share: Floats, moment: Floats, expected: Floats) -> None:
    """share = 1/Z, and the member's entropy added to the expected one."""
    for r in range(BLOCK):
        share[r] = 0.0
        moment[r] = 0.0
    for c in range(z.shape[0]):
        for r in range(BLOCK):
            share[r] += np.float64(e[c, r])
            moment[r] += np.float64(e[c, r]) * np.float64(z[c, r])
    for r in range(BLOCK):
        total = share[r]
        share[r] = 1.0 / total
        expected[r] += weight * (log(total) - moment[r] * share[r])


@_compiled()
def _average(weight: float, e: Floats, share: Floats, centre: Floats, mean: Floats, square: Floats) -> None:
    """Σ w p and Σ w (p − centre)²."""
    for c in range(e.shape[0]):
        for r in range(BLOCK):
            p = np.float64(e[c, r]) * share[r]
            away = p - centre[c, r]
            mean[c, r] += weight * p
            square[c, r] += (weight * away) * away


@_compiled()
def _measure_mean(mean: Floats, votes: Floats, entropy: Floats, variance: Floats, most: Floats) -> None:
    """H[p̄], Σ p̄(1 − p̄) and the votes for the winner."""
    for r in range(BLOCK):
        entropy[r] = 0.0
        variance[r] = 0.0
        most[r] = 0.0
    for c in range(mean.shape[0]):
        for r in range(BLOCK):
            p = mean[c, r]
            entropy[r] -= p * log(TINY if p < TINY else p)
            variance[r] += p * (1.0 - p)
            most[r] = votes[c, r] if votes[c, r] > most[r] else most[r]


@_compiled()
def _measure_lead(mean: Floats, first: Floats, second: Floats, rest: Floats) -> None:
    """The two largest p̄, and the sum of all but the largest: more exact than 1 − p̄₍₁₎ where that is near 0."""
    for r in range(BLOCK):
        first[r] = 0.0
        second[r] = 0.0
        rest[r] = 0.0
    for c in range(mean.shape[0]):
        for r in range(BLOCK):
            leads = mean[c, r] > first[r]
            lower = first[r] if leads else mean[c, r]
            first[r] = mean[c, r] if leads else first[r]
            second[r] = lower if lower > second[r] else second[r]
            rest[r] += lower


@_compiled()
def _measure_spread(
    mean: Floats, centre: Floats, square: Floats, apart: Floats, spread: Floats, deviation: Floats
) -> None:
    """Σ_c Var_m(p_c) and Σ_c sd_m(p_c); apart is 0 where all members say the same."""
    for r in range(BLOCK):
        apart[r] = 0.0
        spread[r] = 0.0
        deviation[r] = 0.0
    for c in range(mean.shape[0]):
        for r in range(BLOCK):
            off = mean[c, r] - centre[c, r]
            variance = square[c, r] - off * off
            variance = 0.0 if variance < 0.0 else variance
            apart[r] += square[c, r]
            spread[r] += variance
            deviation[r] += np.sqrt(variance)


@_cached("void(float32[:,:,:], float64[::1], float64[::1], float64, int64, int64, float32[:,::1])")
def fill(
    logits: Floats, weights: Floats, ballots: Floats, electorate: float, start: int, stop: int, out: Floats
) -> None:
    """Rows start to stop of out [8, N] from logits [M, N, C], weights [M] that sum to 1 and ballots [M], M ≥ 1, C ≥ 1.

    Ballots are the weights in votes, and `electorate` their sum: whole numbers where members are equal, so that equal
    counts of votes give equal bits.
    """
    n_members, _, n_classes = logits.shape
    x = np.empty((n_classes, BLOCK), np.float32)
    following = np.empty((n_classes, BLOCK), np.float32)
    e = np.empty((n_classes, BLOCK), np.float32)
    peak = np.empty(BLOCK, np.float32)
    winner = np.empty(BLOCK, np.int32)
    mean = np.empty((n_classes, BLOCK))
    centre = np.empty((n_classes, BLOCK))
    square = np.empty((n_classes, BLOCK))
    votes = np.empty((n_classes, BLOCK))
    share, moment, expected = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    entropy, variance, most = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    first, second, rest = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    apart, spread, deviation = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for row in range(start, stop, BLOCK):
        mean[:] = 0.0
        square[:] = 0.0
        votes[:] = 0.0
        expected[:] = 0.0
        _turn(logits[0, row : row + BLOCK], following)
        for m in range(n_members):
            x, following = following, x
            if m + 1 < n_members:  # one member ahead, so that what was stored number by number is there to be loaded
                _turn(logits[m + 1, row : row + BLOCK], following)
            _find_peaks(x, peak, winner)
            _exponentiate(x, peak, e)
            _normalise(weights[m], x, e, share, moment, expected)
            for r in range(BLOCK):
                votes[winner[r], r] += ballots[m]
            if m == 0:
                for c in range(n_classes):
                    for r in range(BLOCK):
                        centre[c, r] = np.float64(e[c, r]) * share[r]
            _average(weights[m], e, share, centre, mean, square)
        _measure_mean(mean, votes, entropy, variance, most)
        _measure_lead(mean, first, second, rest)
        _measure_spread(mean, centre, square, apart, spread, deviation)
        for r in range(min(BLOCK, stop - row)):
            information = entropy[r] - expected[r]
            out[0, row + r] = 0.0 if information < 0.0 or apart[r] == 0.0 else information
            out[1, row + r] = 0.0 if entropy[r] < 0.0 else entropy[r]
            out[2, row + r] = 0.0 if most[r] > electorate else (electorate - most[r]) / electorate
            out[3, row + r] = rest[r]
            out[4, row + r] = rest[r] + second[r]
            out[5, row + r] = 0.0 if variance[r] < 0.0 else variance[r]
            out[6, row + r] = spread[r]
            out[7, row + r] = deviation[r] / n_classes
