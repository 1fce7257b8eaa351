"""The compiled part of `kernels.py`, imported there when it is first needed: numba, and seconds to compile once.

Logits [M, N, C] -> the statistics of each row. A block of rows is turned, member by member, so that neighbouring rows
lie next to one another, and goes sixteen rows at a time (`lanes.py`) through loops over its classes; all that is in use
stays in the nearest cache. What a row gets depends on that row alone: no sum runs across rows, and a block is always
whole (its last row is repeated), so that each row goes through the same instructions.

With z_c = l_c − max l, a member's Z is Σ e^z_c. With t the same sum over all classes but the largest, its entropy is
log(1 + t) − Σ e^z_c z_c / Z. Both terms are sums of one sign, and so are those of the mean's entropy below: float32
then keeps its seven digits where members are all but certain and 1 − p would have none left. Equal members need one
logarithm a group: that of the product of their Z, of which 1 + u is kept as u. Long sums, over groups of classes and of
members, are float64. Members that agree, all e^z_c alike, have a mutual information of exactly 0.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from bensemble_core.acquisition.fused.elementary import LEAST, ONE, ROUND, ZERO, exp, log, log1p
from bensemble_core.acquisition.fused.lanes import (
    QUARTER,
    WIDTH,
    align_stack,
    fetch,
    gather,
    jit,
    load,
    narrow,
    order,
    select,
    splat,
    store,
    transpose,
    widen,
)

Floats: TypeAlias = npt.NDArray[Any]  # [C · BLOCK] or [BLOCK] where no other shape is given
F = TypeVar("F", bound=Callable[..., Any])

BLOCK = 128  # rows that are processed together; a multiple of WIDTH
GROUP = 16  # terms that are summed in float32, before float64
N_COLUMNS = 6  # statistics without the two of the members' spread, which are there where `out` has room for them
N_WITHOUT_INFORMATION, N_WITHOUT_VOTES = 1, 2  # columns before those of the information, and of the votes
FLOOR = np.float32(-80.0)  # what is below is e^−80, 1.8e-35, whose products with shares and weights are normal float32
NEGLIGIBLE = np.float32(GROUP * 2e-35)  # a group's sum that counts as 0


def _cached(signature: str) -> Callable[[F], F]:
    """Kept on disk where numba finds a folder it may write to (NUMBA_CACHE_DIR, beside this file, the user's own).

    Numba compiles it anew when this file has changed, and does not look at what it calls: with a change of arithmetic
    in `lanes.py` or `elementary.py` this file has to change too, or machines go on with what they have.
    """

    def compile_it(function: F) -> F:
        try:
            return jit(signature, cache=True)(function)
        except (RuntimeError, OSError):  # a read-only installation, or a full disk: compiled once a process
            return jit(signature)(function)

    return compile_it


@jit()
def _turn(member: Floats, row: int, x: Floats) -> None:
    """A block of a member's rows [N, C] as columns; beyond the last, that one repeated."""
    n_rows, n_classes = member.shape
    are_neighbours = n_classes >= QUARTER and member.strides[1] == member.itemsize
    for r in range(0, BLOCK, WIDTH):
        if are_neighbours and row + r + WIDTH <= n_rows:
            for start in range(0, n_classes, QUARTER):
                c = min(start, n_classes - QUARTER)  # some may be turned twice
                transpose(member, row + r, c, x, c * BLOCK + r, BLOCK)
        else:
            first = min(row + r, n_rows - 1)
            last = np.int32(min(n_rows - 1 - first, WIDTH - 1))
            offsets = order()
            offsets = select(offsets > last, splat(last), offsets) * np.int32(member.strides[0])
            for c in range(n_classes):
                store(x, c * BLOCK + r, gather(member, first, c, offsets))


@jit()
def _find_peak(x: Floats, r: int) -> Any:
    """The largest logit."""
    peak = load(x, r)
    for at in range(r + BLOCK, x.shape[0], BLOCK):
        value = load(x, at)
        peak = select(value > peak, value, peak)
    return peak


@jit()
def _find_winner(x: Floats, r: int) -> Any:
    """The largest logit and its class, the lower of two that are equal."""
    peak, winner = load(x, r), splat(np.int32(0))
    for at in range(r + BLOCK, x.shape[0], BLOCK):
        value = load(x, at)
        higher = value > peak
        winner = select(higher, splat(np.int32(at // BLOCK)), winner)
        peak = select(higher, value, peak)
    return peak, winner


@jit()
def _exponentiate(x: Floats, at: int, peak: Any) -> Any:
    """z of one class and e^z, which x becomes."""
    z = load(x, at) - peak
    z = select(z < FLOOR, splat(FLOOR), z)  # false for NaN, which so stays
    e = exp(z)
    store(x, at, e)
    return z, e


@jit()
def _sum(x: Floats, r: int, peak: Any) -> Any:
    """Z, while x becomes e^z."""
    if x.shape[0] <= GROUP * BLOCK:
        return _sum_group(x, r, x.shape[0], peak)
    total = splat(0.0)
    for first in range(r, x.shape[0], GROUP * BLOCK):
        total = total + widen(_sum_group(x, first, min(first + GROUP * BLOCK, x.shape[0]), peak))
    return narrow(total)


@jit()
def _sum_group(x: Floats, start: int, stop: int, peak: Any) -> Any:
    total = splat(ZERO)
    for at in range(start, stop, BLOCK):
        _, e = _exponentiate(x, at, peak)
        total = total + e
    return total


@jit()
def _sums(x: Floats, r: int, peak: Any) -> Any:
    """Z, the same bits as above, t and Σ e^z z, while x becomes e^z."""
    if x.shape[0] <= GROUP * BLOCK:
        total, tail, moment = _sums_group(x, r, x.shape[0], peak)
    else:
        totals, tails, moments = splat(0.0), splat(0.0), splat(0.0)
        for first in range(r, x.shape[0], GROUP * BLOCK):
            total, tail, moment = _sums_group(x, first, min(first + GROUP * BLOCK, x.shape[0]), peak)
            totals, tails, moments = totals + widen(total), tails + widen(tail), moments + widen(moment)
        total, tail, moment = narrow(totals), narrow(tails), narrow(moments)
    n_largest = (total - tail + ROUND) - ROUND  # each has added 1 to Z, and nothing to the tail
    return total, tail + (n_largest - ONE), moment


@jit()
def _sums_group(x: Floats, start: int, stop: int, peak: Any) -> Any:
    total, tail, moment = splat(ZERO), splat(ZERO), splat(ZERO)
    for at in range(start, stop, BLOCK):
        z, e = _exponentiate(x, at, peak)
        total = total + e
        tail = tail + select(z < ZERO, e, splat(ZERO))
        moment = moment + e * z
    return total, tail, moment


@jit()
def _add_member(
    x: Floats,
    ballot: float,
    are_equal: bool,
    coming: tuple[Floats, int],
    product: Floats,
    entropy: Floats,
    mean: Floats,
    vote: Floats,
    has_information: bool,
    has_votes: bool,
    shares: Floats,
) -> None:
    """The member's probabilities, vote and entropy, times its ballot; x becomes e^z, and shares 1/Z. Of equal members'
    entropies the logarithms are left for later: there is the product.

    Meanwhile the block that is coming, the next member's rows or the first one's next rows, is fetched from memory.
    """
    weight = np.float32(ballot)
    for r in range(0, BLOCK, WIDTH):
        if coming[1] + r + WIDTH <= coming[0].shape[0]:
            for row in range(coming[1] + r, coming[1] + r + WIDTH):
                fetch(coming[0], row)
        if has_votes:
            peak, winner = _find_winner(x, r)
            for at in range(r, x.shape[0], BLOCK):
                mine = select(winner == np.int32(at // BLOCK), splat(weight), splat(ZERO))
                store(vote, at, load(vote, at) + mine)
        else:
            peak = _find_peak(x, r)
        if has_information:
            total, tail, moment = _sums(x, r, peak)
            share = splat(ONE) / total
            nats = load(entropy, r)
            if are_equal:
                u = load(product, r)
                store(product, r, u * tail + (u + tail))
                store(entropy, r, nats - moment * share)
            else:
                store(entropy, r, (log1p(tail) - moment * share) * weight + nats)
        else:
            share = splat(ONE) / _sum(x, r, peak)
        store(shares, r, share)
        share = share * weight
        for at in range(r, x.shape[0], BLOCK):
            store(mean, at, load(mean, at) + load(x, at) * share)


@jit()
def _move(group: Floats, total: Floats, is_first: bool) -> None:
    """Adds a group's sums to the float64 ones; what counts as 0 becomes 0."""
    for at in range(0, group.shape[0], WIDTH):
        value = load(group, at)
        exact = widen(select(value < NEGLIGIBLE, splat(ZERO), value))
        store(total, at, exact if is_first else load(total, at) + exact)
        store(group, at, splat(ZERO))


@jit()
def _move_entropy(product: Floats, entropy: Floats, expected: Floats) -> None:
    """As `_move`, with the logarithm of the product."""
    for r in range(0, BLOCK, WIDTH):
        store(expected, r, load(expected, r) + widen(load(entropy, r) + log1p(load(product, r))))
        store(entropy, r, splat(ZERO))
        store(product, r, splat(ZERO))


@jit()
def _copy(source: Floats, target: Floats) -> None:
    for at in range(0, source.shape[0], WIDTH):
        store(target, at, load(source, at))


@jit()
def _compare(e: Floats, leader: Floats, agrees: Floats) -> int:
    """Which rows are still as the first member had them, and how many."""
    for r in range(0, BLOCK, WIDTH):
        same = load(agrees, r)
        for at in range(r, e.shape[0], BLOCK):
            same = select(load(e, at) == load(leader, at), same, splat(np.int32(0)))
        store(agrees, r, same)
    n_rows = 0
    for r in range(BLOCK):
        n_rows += agrees[r]
    return n_rows


@jit()
def _add_spread(
    e: Floats, shares: Floats, ballot: float, is_first: bool, centre: Floats, drift: Floats, square: Floats
) -> None:
    """Σ w (p − centre) and Σ w (p − centre)² in float64, p itself being float32; the centre is the first member's p."""
    for r in range(0, BLOCK, WIDTH):
        share = load(shares, r)
        for at in range(r, e.shape[0], BLOCK):
            p = widen(load(e, at) * share)  # rounded, or the difference of equal p might be the rounding
            if is_first:
                store(centre, at, p)
            away = p - load(centre, at)
            store(drift, at, load(drift, at) + away * ballot)
            store(square, at, load(square, at) + (away * ballot) * away)


@jit()
def _lead(values: Floats, r: int) -> Any:
    """The largest and its class, the second, the sum of all but the largest and that of their squares."""
    first, second, rest, squares, top = splat(0.0), splat(0.0), splat(0.0), splat(0.0), splat(np.int32(0))
    for at in range(r, values.shape[0], BLOCK):
        value = load(values, at)
        leads = value > first
        lower = select(leads, first, value)
        top = select(leads, splat(np.int32(at // BLOCK)), top)
        first = select(leads, value, first)
        second = select(lower > second, lower, second)
        rest = rest + lower
        squares = squares + lower * lower
    return first, top, second, rest, squares


@jit()
def _entropy(means: Floats, r: int, first: Any, top: Any, rest: Any) -> Any:
    """H[p̄], p̄ being the means over their sum; −log p̄₍₁₎ is log(1 + rest/first)."""
    share = splat(1.0) / (first + rest)
    nats = first * share * widen(log1p(narrow(rest / first)))
    for at in range(r, means.shape[0], BLOCK):
        p = narrow(load(means, at) * share)
        term = p * log(select(p < LEAST, splat(LEAST), p))
        nats = nats - widen(select(top == np.int32(at // BLOCK), splat(ZERO), term))
    return nats


@jit()
def _measure(
    means: Floats, votes: Floats, expected: Floats, agrees: Floats, electorate: float, n_columns: int, found: Floats
) -> None:
    """found [N_COLUMNS · BLOCK] of a block; no sum that cancels but that of the mutual information."""
    for r in range(0, BLOCK, WIDTH):
        first, top, second, rest, squares = _lead(means, r)
        entropy = _entropy(means, r, first, top, rest)
        store(found, r, narrow(select(entropy < 0.0, splat(0.0), entropy)))
        if n_columns <= N_WITHOUT_INFORMATION:
            continue
        information = entropy - load(expected, r) / electorate
        information = select(load(agrees, r) == np.int32(1), information - information, information)  # NaN stays NaN
        store(found, BLOCK + r, narrow(select(information < 0.0, splat(0.0), information)))
        if n_columns <= N_WITHOUT_VOTES:
            continue
        total = first + rest
        most, _, _, others, _ = _lead(votes, r)
        unsound = total - total  # 0, or NaN where a member's row is no distribution, of which votes know nothing
        store(found, 2 * BLOCK + r, narrow(others / (most + others) + unsound))
        store(found, 3 * BLOCK + r, narrow(rest / total))
        store(found, 4 * BLOCK + r, narrow((rest + second) / total))
        variance = first * rest + (rest * total - squares)
        store(found, 5 * BLOCK + r, narrow(select(variance < 0.0, splat(0.0), variance) / (total * total)))


@jit()
def _measure_spread(drift: Floats, square: Floats, electorate: float, spread: Floats, deviation: Floats) -> None:
    """Σ_c Var_m(p_c) and Σ_c sd_m(p_c)."""
    scale = 1.0 / electorate
    spread[:] = 0.0
    deviation[:] = 0.0
    for c in range(drift.shape[0] // BLOCK):
        for r in range(BLOCK):
            off = drift[c * BLOCK + r] * scale
            variance = square[c * BLOCK + r] * scale - off * off
            variance = 0.0 if variance < 0.0 else variance
            spread[r] += variance
            deviation[r] += np.sqrt(variance)


@_cached("void(float32[:,:,:], float64[::1], int64, int64, float32[:,::1])")
def fill(logits: Floats, ballots: Floats, start: int, stop: int, out: Floats) -> None:
    """Rows start to stop of out [1, 2, 6 or 8, N] from logits [M, N, C] and ballots [M], M ≥ 1, C ≥ 1.

    Ballots are the members' weights up to a factor, 1 where members are equal: whole votes are counted, so that equal
    counts give equal bits. A column has the same bits however many of them are asked for.
    """
    align_stack()
    n_members, _, n_classes = logits.shape
    size, n_columns = n_classes * BLOCK, out.shape[0]
    has_information, has_votes = n_columns > N_WITHOUT_INFORMATION, n_columns > N_WITHOUT_VOTES
    has_spread = n_columns > N_COLUMNS
    x, leader = np.empty(size, np.float32), np.empty(size, np.float32)
    mean, vote = np.zeros(size, np.float32), np.zeros(size, np.float32)
    means, votes = np.empty(size), np.empty(size)
    centre, drift, square = np.empty(size), np.empty(size), np.empty(size)
    expected, spread, deviation = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    shares, product, entropy = np.empty(BLOCK, np.float32), np.zeros(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    agrees, found = np.empty(BLOCK, np.int32), np.empty(N_COLUMNS * BLOCK, np.float32)
    electorate, are_equal = ballots.sum(), (ballots == 1.0).all()
    span = min(GROUP, int(125.0 / np.log2(n_classes + 1.0)))  # members of a group, whose product of Z is below 2¹²⁵
    for row in range(start, stop, BLOCK):
        expected[:] = 0.0
        agrees[:] = 1
        n_alike, has_leader = BLOCK, False
        if has_spread:
            drift[:] = 0.0
            square[:] = 0.0
        for m in range(n_members):
            _turn(logits[m], row, x)
            after = m + 1 if m + 1 < n_members else 0
            coming = logits[after], row if after else row + BLOCK
            _add_member(
                x, ballots[m], are_equal, coming, product, entropy, mean, vote, has_information, has_votes, shares
            )
            # whether members agree does not depend on those without a weight
            if has_information and ballots[m] > 0.0 and n_alike > 0:
                if not has_leader:
                    _copy(x, leader)
                    has_leader = True
                else:
                    n_alike = _compare(x, leader, agrees)
            if has_spread:
                _add_spread(x, shares, ballots[m], m == 0, centre, drift, square)
            if m % span == span - 1 or m == n_members - 1:
                _move(mean, means, m < span)
                if has_information:
                    _move_entropy(product, entropy, expected)
                if has_votes:
                    _move(vote, votes, m < span)
        _measure(means, votes, expected, agrees, electorate, n_columns, found)
        n_rows = min(BLOCK, stop - row)
        for column in range(min(N_COLUMNS, n_columns)):
            for r in range(n_rows):
                out[column, row + r] = found[column * BLOCK + r]
        if has_spread:
            _measure_spread(drift, square, electorate, spread, deviation)
            for r in range(n_rows):
                out[N_COLUMNS, row + r] = spread[r]
                out[N_COLUMNS + 1, row + r] = deviation[r] / n_classes
