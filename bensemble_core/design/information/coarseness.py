"""Whether a grid is too coarse for how precisely an outcome is measured.

p(y) is the sum of one density a point of the grid. Where the outcomes that neighbours predict lie more than two noise
sds apart the densities hardly overlap, and the sum has gaps: an outcome tells which of the points it came from, and EIG
is the entropy of the grid at every spacing alike. How two spacings differ is no measure of that error.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.spec.model import Model

FAR = 2.0  # noise sds between neighbours, beyond which their outcomes do not overlap
CLOSE = 1.0  # noise sds between neighbours, beyond which a grid does not resolve what an outcome leaves
SHARE = 0.1  # of the belief at such points: less, as around a pole, two spacings can tell
N_POINTS = 200  # that are looked at, by weight
ROUNDED = 0.5  # least noise sd of a count
NOTE = (
    "the grid is too coarse for this precision: outcomes predicted at neighbouring points lie more than two noise sds "
    "apart, so that eig is a rough figure without a stated error; a narrower prior or fewer parameters allow a finer "
    "grid"
)

Flags = npt.NDArray[np.bool_]


def nowhere(rows: Tensor) -> Flags:
    """Not at any of these designs [J, …]: [J]."""
    return np.zeros(len(rows), dtype=np.bool_)


def too_coarse(model: Model, belief: PointBelief, rows: Tensor, *, far: float = FAR) -> Flags:
    """Whether the belief's grid is too coarse for the EIG of each design [J, D]: [J]. Other points have no neighbours,
    and a utility is averaged at each point by itself: there it is never said."""
    found = nowhere(rows)
    frame = belief.points.frame
    variables = [i for i, variable in enumerate(model.outcomes) if hasattr(variable.family, "place")]
    if frame is None or not frame.n or not variables or model.utility is not None:
        return found
    points = _pairs(belief, frame.n)
    theta = {name: column[torch.from_numpy(points.ravel())] for name, column in belief.points.values.items()}
    arguments = model.arguments(theta, rows[:, None, :])
    shape = (len(rows), *points.shape)
    for i in variables:
        family = model.outcomes[i].family
        below, middle, above = (
            family.place(arguments[i], score).expand(len(rows), points.size).reshape(shape).numpy()
            for score in (-1.0, 0.0, 1.0)
        )
        with np.errstate(invalid="ignore"):  # on a sliver of the prior, where the model need not be defined
            noise = np.maximum(0.5 * (above - below), ROUNDED if family.is_discrete else 0.0)
            gaps = np.abs(middle[..., 1:] - middle[..., :1])  # [J, n, K]
            is_far = (gaps > far * 0.5 * (noise[..., 1:] + noise[..., :1])).any(2)
        found |= is_far.mean(1) > SHARE
    return found


def _pairs(belief: PointBelief, n: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Numbers of points that are evenly spread over the mass, each with its neighbour along every axis: [n, 1 + K]."""
    quantiles = (np.arange(N_POINTS) + 0.5) / N_POINTS
    chosen = np.searchsorted(belief.mass.cumsum(), quantiles).clip(max=belief.points.n - 1)
    shape = (*n, belief.points.n // int(np.prod(n)))  # the last axis are combinations of listed values
    place = np.stack(np.unravel_index(chosen, shape))  # [K + 1, n]
    columns = [chosen]
    for axis, size in enumerate(n):
        beside = place.copy()
        beside[axis] += np.where(place[axis] < size - 1, 1, -1)
        columns.append(np.ravel_multi_index(tuple(beside), shape))
    return np.stack(columns, 1)
