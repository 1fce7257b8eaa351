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


def too_coarse(model: Model, belief: PointBelief, rows: Tensor, *, far: float = FAR) -> Flags:
    """Whether the belief's grid is too coarse for the EIG of each design [J, D]: [J]. Draws have no neighbours, and a
    utility is averaged at each point by itself: there it is never said."""
    found = np.zeros(len(rows), dtype=np.bool_)
    frame = belief.points.frame
    variables = [i for i, variable in enumerate(model.outcomes) if hasattr(variable.family, "place")]
    if frame is None or not frame.is_grid or not frame.centre or not variables or model.utility is not None:
        return found
    quantiles = (np.arange(N_POINTS) + 0.5) / N_POINTS
    chosen = torch.from_numpy(np.searchsorted(belief.mass.cumsum(), quantiles).clip(max=belief.points.n - 1))
    z = belief.points.scores[chosen]
    steps = torch.tensor(frame.factor, dtype=torch.float64).mT * frame.spacing  # [K, K] from point to point
    at = torch.cat([z[:, None], z[:, None] + steps], 1)  # [n, 1 + K, K]
    beside = belief.points.prior.at_scores(at.flatten(0, 1))[0] if belief.points.prior else {}
    same = {name: belief.points.values[name][chosen].repeat_interleave(at.shape[1]) for name in belief.points.listed}
    arguments = model.arguments({**same, **beside}, rows[:, None, :])
    shape = (len(rows), *at.shape[:2])
    for i in variables:
        family = model.outcomes[i].family
        below, middle, above = (
            family.place(arguments[i], score).expand(len(rows), at.shape[0] * at.shape[1]).reshape(shape).numpy()
            for score in (-1.0, 0.0, 1.0)
        )
        with np.errstate(invalid="ignore"):  # on a sliver of the prior, where the model need not be defined
            noise = np.maximum(0.5 * (above - below), ROUNDED if family.is_discrete else 0.0)
            gaps = np.abs(middle[..., 1:] - middle[..., :1])  # [J, n, K]
            is_far = (gaps > far * 0.5 * (noise[..., 1:] + noise[..., :1])).any(2)
        found |= is_far.mean(1) > SHARE
    return found
