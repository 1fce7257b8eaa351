"""p(y | φ) from points of which no two share their targets φ.

Each of some points takes its nearest neighbours in the targets, moved to its own φ along the regression of the other
scores on those of the targets (Beaumont, Zhang & Balding 2002),

    η_p  ->  η_p + B (φ_g − φ_p),    B = Cov(η, φ) Cov(φ)⁻¹

so that what is averaged over a group are draws of p(η | φ_g): exactly in a normal posterior, and else up to the square
of the distance, which the nearer and the farther half of the neighbours tell.
"""

import numpy as np
import torch

from bensemble_core.design.belief.belief import PointBelief
from bensemble_core.design.belief.points import N_PARTS, Array, Points
from bensemble_core.design.spec.blocks import JointPrior

N_GROUPS = 2**9
N_NEIGHBOURS = 2**6
LISTED_APART = 100.0  # sds, by which other values of a list are farther than any of the same
LIGHT = 1e-9  # weight of a point beside the greatest that is nobody's neighbour


def neighbourhoods(prior: JointPrior, belief: PointBelief) -> PointBelief:
    """The belief as groups of points that share their targets; `half_nodes` are the nearer ones of each."""
    points, k = belief.points, prior.n_target_scores
    z, mass = points.score_array, belief.mass
    names = [name for name in prior.targets if name in points.listed]
    listed = np.stack([_standardised(points.values[name].numpy(), mass) for name in names], 1) if names else z[:, :0]
    if not k:  # targets of lists alone are shared by many
        _, groups = np.unique(listed, axis=0, return_inverse=True)
        chosen = torch.from_numpy(groups.ravel().argsort(kind="stable"))
        order = torch.from_numpy(groups.ravel())[chosen]
        is_near = torch.arange(points.n) % 2 == 0
        return _grouped(belief, chosen, points.scores[chosen], belief.weights[chosen], order, is_near)
    mean = mass @ z
    spread = (mass * (z - mean).T) @ (z - mean)
    root = np.linalg.cholesky(spread[:k, :k] + 1e-12 * np.eye(k))
    where = torch.from_numpy(np.hstack([LISTED_APART * listed, np.linalg.solve(root, (z[:, :k] - mean[:k]).T).T]))
    along = where[:, 0].numpy().argsort(kind="stable")
    u = (np.arange(N_GROUPS).reshape(-1, N_PARTS).T.ravel() + 0.5) / N_GROUPS  # each sixteenth is spread over all
    middle = along[np.searchsorted(mass[along].cumsum(), u).clip(max=points.n - 1)]
    some = torch.from_numpy((mass > LIGHT * mass.max()).nonzero()[0])
    n = min(N_NEIGHBOURS, len(some) // 2 * 2)
    nearest = some[torch.cdist(where[middle], where[some]).topk(n, largest=False).indices].flatten()
    moved = points.scores[nearest]
    move = torch.from_numpy(z[middle, :k]).repeat_interleave(n, 0) - moved[:, :k]
    slopes = torch.from_numpy(np.linalg.lstsq(spread[:k, :k], spread[:k, k:], rcond=None)[0])
    moved = torch.cat([moved[:, :k] + move, moved[:, k:] + move @ slopes], 1)
    weights = belief.weights[nearest].reshape(N_GROUPS, n)
    weights = (weights / weights.sum(1, keepdim=True) / N_GROUPS).flatten()
    groups_ = torch.arange(N_GROUPS).repeat_interleave(n)
    return _grouped(belief, nearest, moved, weights, groups_, torch.arange(len(nearest)) % n < n // 2, prior=prior)


def _grouped(
    belief: PointBelief,
    chosen: torch.Tensor,
    scores: torch.Tensor,
    weights: torch.Tensor,
    groups: torch.Tensor,
    is_near: torch.Tensor,
    prior: JointPrior | None = None,
) -> PointBelief:
    points = belief.points
    values = {name: column[chosen] for name, column in points.values.items()}
    return PointBelief(
        method="particles",
        points=Points(
            key=("neighbours", points.key, belief.mass.tobytes()),
            values=values if prior is None else {**values, **prior.at_scores(scores)[0]},
            log_prior=weights.log(),
            log_density=points.log_density[chosen],
            scores=scores,
            mass=torch.full_like(weights, 1 / len(weights)),
            groups=groups,
            n_groups=int(groups[-1]) + 1,
            half_nodes=is_near,
            listed=points.listed,
        ),
        names=belief.names,
        mass=weights.numpy(),
        log_likelihood=belief.log_likelihood[chosen.numpy()],
        log_evidence=belief.log_evidence,
        spread=belief.spread,
    )


def _standardised(values: Array, mass: Array) -> Array:
    mean = mass @ values
    return np.asarray((values - mean) / max(float(np.sqrt(mass @ (values - mean) ** 2)), 1e-300))
