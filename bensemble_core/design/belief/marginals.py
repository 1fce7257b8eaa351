"""What a posterior on a grid says between its points: the distribution function of each parameter, and draws.

A parameter is a monotone map of v = o + Σ_{j ≤ i} m_j u_j, with u the coordinates of the grid and i the parameter's own
axis (prior and frame are both triangular). Hence

    P(v ≤ t) = Σ over the other axes of ∫ density du_i  up to  (t − o − Σ_{j < i} m_j u_j) / m_i

where the inner integral is that of a cubic spline, and the sum the trapezoid rule, as exact as the grid.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.belief.points import REACH, Array, Points
from bensemble_core.randomness import generator

NEGLIGIBLE = 1e-14  # of the mass: a line of the grid that holds less is left out
CELLS = 2_000_000  # spline values held at once
PER_STEP = 32  # places between two points


def curve(points: Points, mass: Array, name: str) -> tuple[Array, Array]:
    """The distribution function of a continuous parameter on a fine mesh: values and the mass below each."""
    from scipy.interpolate import CubicSpline  # slow to import, and only summaries need it

    assert points.prior is not None
    assert points.frame is not None
    frame = points.frame
    axis, slopes, offset, prior = points.prior.coordinate(name)
    factor = np.asarray(frame.factor)
    steps = np.asarray(frame.spacing) * (np.asarray(slopes) @ factor)  # of v, from point to point along each axis
    start = offset + float(np.asarray(slopes) @ (np.asarray(frame.centre) - REACH * factor.sum(1)))
    cube = mass.reshape(*frame.n, -1)
    lines = cube.sum(tuple(range(axis + 1, cube.ndim))).reshape(-1, frame.n[axis])  # [l, n]
    before = np.zeros(1)
    for step, n in zip(steps[:axis], frame.n[:axis], strict=True):
        before = (before[:, None] + step * np.arange(n)).ravel()  # [l]
    keep = lines.sum(1) > NEGLIGIBLE
    lines, before = lines[keep], before[keep]
    at = start + before[:, None] + steps[axis] * np.arange(frame.n[axis])
    some = at[lines > NEGLIGIBLE * lines.max()]
    n_mesh = int(np.ceil((some.max() - some.min()) / steps[axis])) + 2
    mesh = some.min() - steps[axis] + steps[axis] / PER_STEP * np.arange(PER_STEP * n_mesh + 1)
    spline = CubicSpline(np.arange(frame.n[axis]), lines, axis=1).antiderivative()
    below = np.zeros(len(mesh))
    stride = max(1, CELLS // len(mesh))
    for first in range(0, len(lines), stride):
        part = slice(first, first + stride)
        below += _up_to(spline.c[:, :, part], (mesh[:, None] - start - before[part]) / steps[axis])
    below = np.maximum.accumulate(np.maximum(below, 0))
    values = mesh if prior is None else prior.at(torch.from_numpy(mesh)).numpy()
    return values, below / below[-1]


def _up_to(pieces: Array, place: Array) -> Array:
    """Σ over the lines of polynomials [5, n − 1, l] at places [m, l] in units of their steps: [m]."""
    place = np.clip(place, 0, pieces.shape[1])
    piece = np.minimum(place.astype(np.int64), pieces.shape[1] - 1)
    x = place - piece
    line = np.arange(place.shape[1])
    found = pieces[0][piece, line]
    for coefficients in pieces[1:]:
        found = found * x + coefficients[piece, line]
    return np.asarray(found.sum(1))


def draws(points: Points, mass: Array, n: int, seed: int) -> Mapping[str, Tensor]:
    """n draws by name, of the density that is a cubic spline through the masses at the points.

    By rejection from the one that is linear between them: a point by its mass, and from there up to a step away.
    """
    assert points.prior is not None
    assert points.frame is not None
    rng = generator(seed)
    frame = points.frame
    k = len(frame.n)
    below = torch.from_numpy(mass).cumsum(0)
    found: list[Tensor] = []
    missing, ceiling = n, 0.0
    while missing > 0:
        size = 2 * missing + 64
        u = torch.rand(size, generator=rng, dtype=torch.float64)
        chosen = torch.searchsorted(below, u * below[-1]).clamp(max=points.n - 1)
        away = torch.rand(size, k, 2, generator=rng, dtype=torch.float64).sum(2) - 1  # [m, K], triangular
        odds = _odds(points, mass, chosen.numpy(), away.numpy())
        ceiling = max(ceiling, float(odds.max()))
        accept = torch.rand(size, generator=rng, dtype=torch.float64).numpy() * ceiling < odds
        kept = np.nonzero(accept)[0][:missing]
        factor = torch.tensor(frame.factor, dtype=torch.float64) * torch.tensor(frame.spacing, dtype=torch.float64)
        scores = points.scores[chosen[kept]] + away[kept] @ factor.mT
        found.append(torch.cat([chosen[kept, None].double(), scores], 1))
        missing -= len(kept)
    drawn = torch.cat(found)
    listed = drawn[:, 0].long()
    return {
        **{name: column[listed] for name, column in points.values.items()},
        **points.prior.at_scores(drawn[:, 1:])[0],
    }


def _odds(points: Points, mass: Array, chosen: npt.NDArray[np.int64], away: Array) -> Array:
    """The density that is a cubic spline beside that which is linear, at places `away` [m, K] from points [m]."""
    from scipy import ndimage

    assert points.frame is not None
    shape = points.frame.n
    cube = mass.reshape(*shape, -1)
    place = np.stack(np.unravel_index(chosen, cube.shape))  # [K + 1, m]
    at = np.clip(place[:-1] + away.T, 0, np.asarray(shape)[:, None] - 1)
    odds = np.empty(len(chosen))
    for value in np.unique(place[-1]):
        here = place[-1] == value
        smooth, straight = (
            ndimage.map_coordinates(cube[..., value], at[:, here], order=order, mode="nearest") for order in (3, 1)
        )
        odds[here] = np.maximum(smooth, 0) / np.maximum(straight, 1e-300)
    return odds
