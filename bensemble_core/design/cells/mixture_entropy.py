"""The differential entropy of mixtures of normal distributions: on the line by Gauss–Legendre panels that are halved
where they do not suffice, of several outcomes by draws.

    H = −∫ p log p,    p(y) = Σ_a w_a N(y; m_a, s_a²)

The first edges lie at the mixture's own quantiles, evenly in normal scores, so that they are dense where the mass is,
however many scales it has; halving finds peaks that stand apart.
"""

import numpy as np
import numpy.typing as npt
from scipy import special

from bensemble_core.design.spec.spaces import sobol

Array = npt.NDArray[np.float64]
SCORES = np.linspace(-6.0, 6.0, 41)  # of the quantiles between which the first panels lie
TAIL = 4  # panels on either side beyond them
REACH = 8.0  # sds beyond the outermost component
NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)
# A component stands for seven places when quantiles are looked for: a normal distribution in few steps.
PLACES = np.array([-3.2, -2.0, -1.0, 0.0, 1.0, 2.0, 3.2])
SHARES = np.diff(special.ndtr(np.array([-np.inf, -2.6, -1.5, -0.5, 0.5, 1.5, 2.6, np.inf])))
AT_ONCE = 4_000_000  # densities
NEGLIGIBLE = 1e-12  # weight beside the greatest
N_HALVINGS = 40
TOLERANCE = 1e-6  # nats of a panel
N_PARTS = 16


def mixture_entropy(means: Array, sds: Array, weights: Array) -> tuple[Array, Array]:
    """Of mixtures [B, A] with weights [A] that sum to 1: entropies [B], and how far each may be off [B]."""
    kept = weights > NEGLIGIBLE * weights.max()
    found = [_one(m, s, weights[kept]) for m, s in zip(means[:, kept], sds[:, kept], strict=True)]
    return np.array([entropy for entropy, _ in found]), np.array([error for _, error in found])


def _one(m: Array, s: Array, w: Array) -> tuple[float, float]:
    edges = _edges(m, s, w)
    low, high = edges[:-1], edges[1:]
    scaled = w / (s * np.sqrt(2 * np.pi))
    whole = _integrals(low, high, m, s, scaled)
    entropy = error = 0.0
    for turn in range(N_HALVINGS):
        middle = 0.5 * (low + high)
        left, right = _integrals(low, middle, m, s, scaled), _integrals(middle, high, m, s, scaled)
        off = np.abs(left + right - whole)
        rough = (off > TOLERANCE) & (turn + 1 < N_HALVINGS)
        entropy += float((left + right)[~rough].sum())
        error += float(off[~rough].sum())
        if not rough.any():
            break
        whole = np.concatenate([left[rough], right[rough]])
        low, high = np.concatenate([low[rough], middle[rough]]), np.concatenate([middle[rough], high[rough]])
    return entropy, error


def _integrals(low: Array, high: Array, m: Array, s: Array, scaled: Array) -> Array:
    """∫ −p log p over panels [n]."""
    half = 0.5 * (high - low)
    y = ((0.5 * (low + high))[:, None] + half[:, None] * NODES).ravel()
    p = np.empty(len(y))
    step = max(1, AT_ONCE // len(m))
    for first in range(0, len(y), step):
        t = (y[first : first + step, None] - m) / s
        p[first : first + step] = np.exp(-0.5 * t * t) @ scaled
    return np.asarray((special.entr(p).reshape(len(low), -1) @ WEIGHTS) * half)


def _edges(m: Array, s: Array, w: Array) -> Array:
    places = (m[:, None] + s[:, None] * PLACES).ravel()
    shares = (w[:, None] * SHARES).ravel()
    order = np.argsort(places)
    places, shares = places[order], shares[order]
    inner = np.interp(special.ndtr(SCORES), np.cumsum(shares) - 0.5 * shares, places)
    low, high = float((m - REACH * s).min()), float((m + REACH * s).max())
    ends = np.linspace(low, inner[0], TAIL + 1)[:-1], np.linspace(inner[-1], high, TAIL + 1)[1:]
    return np.unique(np.concatenate([ends[0], inner, ends[1], _gaps(m, s)]))


def _gaps(m: Array, s: Array) -> Array:
    """Where nothing begins and where it ends: a panel from one peak to the next would have no node in either."""
    low, high = m - REACH * s, m + REACH * s
    order = np.argsort(low)
    low, reached = low[order], np.maximum.accumulate(high[order])
    is_gap = low[1:] > reached[:-1]
    return np.concatenate([reached[:-1][is_gap], low[1:][is_gap]])


def joint_entropy(means: Array, covariances: Array, weights: Array, n: int) -> tuple[Array, Array]:
    """Of mixtures of normal distributions of several outcomes, [B, A, O] and [B, A, O, O]: entropies [B], and how far
    each may be off [B]. −log p is averaged over n Sobol draws of the mixture, beside that of one normal distribution
    with its moments, whose average is known; their sixteenths tell the error."""
    kept = weights > NEGLIGIBLE * weights.max()
    share = weights[kept] / weights[kept].sum()
    found = [_one_joint(m, c, share, n) for m, c in zip(means[:, kept], covariances[:, kept], strict=True)]
    return np.array([entropy for entropy, _ in found]), np.array([error for _, error in found])


def _one_joint(m: Array, covariance: Array, w: Array, n: int) -> tuple[float, float]:
    n_outcomes = m.shape[1]
    mean = w @ m
    root = np.linalg.cholesky(np.einsum("a,aij->ij", w, covariance) + (w * (m - mean).T) @ (m - mean))
    inner = np.linalg.solve(root, np.linalg.cholesky(covariance))  # [A, O, O], of outcomes in units of all of them
    middle = np.linalg.solve(root, (m - mean).T).T
    u = sobol(n, 1 + n_outcomes, 0).numpy()
    cell = np.searchsorted(w.cumsum(), u[:, 0]).clip(max=len(w) - 1)
    y = middle[cell] + np.einsum("nij,nj->ni", inner[cell], special.ndtri(u[:, 1:]))
    inverse = np.linalg.inv(inner)
    precision = np.swapaxes(inverse, -1, -2) @ inverse
    slope = (precision @ middle[..., None])[..., 0]
    constant = np.log(w) + np.linalg.slogdet(inverse)[1] - 0.5 * (slope * middle).sum(1)
    # every log density as one product: constant + slope · y − ½ yᵀ P y
    of_cells = np.concatenate([constant[:, None], slope, -0.5 * precision.reshape(len(w), -1)], 1)
    squares = (y[:, :, None] * y[:, None]).reshape(n, -1)
    log_p = special.logsumexp(np.concatenate([np.ones((n, 1)), y, squares], 1) @ of_cells.T, axis=1)
    beside = -0.5 * (y**2).sum(1)  # on average −O / 2
    parts = (beside - log_p).reshape(N_PARTS, -1).mean(1)
    whole = 0.5 * n_outcomes * (1 + np.log(2 * np.pi)) + np.log(np.diagonal(root)).sum()
    return float(parts.mean() + whole), float(parts.std(ddof=1) / np.sqrt(N_PARTS))
