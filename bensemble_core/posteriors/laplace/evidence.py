"""Log marginal likelihood of a Laplace approximation, and hyper-parameters chosen by it or by held-out rows."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from bensemble_core.linalg import Dense, Kronecker
from bensemble_core.posteriors.laplace.curvature import Block, Deltas

_ITERATIONS, _TOLERANCE = 500, 1e-10  # most steps, and the change of a log precision at which they end
_LEAST, _MOST = 1e-10, 1e10  # of a prior precision: for a parameter that is exactly 0 the best one is infinite
GRID = tuple(10.0 ** (k / 2.5) for k in range(-10, 11))  # precisions tried on held-out rows: 10⁻⁴ … 10⁴


def log_evidence(
    blocks: Sequence[Block], deltas: Deltas, theta: Mapping[str, Tensor], log_likelihood: Tensor
) -> Tensor:
    """log p(D) ≈ log p(D | θ*) + log p(θ*) + (P/2) log 2π − ½ log |H + δ|, exact where log p(D, θ) is quadratic: [].

    = log p(D | θ*) + ½ Σ_i (log δ_i − δ_i θ*_i²) − ½ log |H + δ| (MacKay 1992). `theta` is θ* without a leading axis.
    """
    total = log_likelihood.to(torch.float64)
    for name, delta in deltas.items():
        wide = theta[name].to(torch.float64)
        total = total + 0.5 * (wide.numel() * delta.log() - delta * wide.square().sum())
    return total - 0.5 * torch.stack([block.log_det(deltas) for block in blocks]).sum()


def maximise_evidence(
    blocks: Sequence[Block],
    deltas: Deltas,
    theta: Mapping[str, Tensor],
    *,
    per_layer: bool,
    choose_prior: bool,
    errors: Tensor | None,
    n_targets: int,
) -> tuple[Deltas, float]:
    """Prior precisions and the factor on the noise variance at which the evidence is largest, θ* held.

    MacKay's fixed points (1992): δ = γ / Σθ² with γ = Σ λ/(λ + δ) well-determined parameters, and, for noise s² times
    the present one, s² = (errors + s²γ) / n_targets (the EM form, which stays above 0; `errors` is Σ (y − f)² in units
    of the present variance; None keeps the noise). log δ moves half of the way to its fixed point: the full step has a
    slope in (−1, 0) and may cycle, half of it has one in (0, ½) and converges to the only maximum.
    """
    dense_layers = per_layer and choose_prior and any(isinstance(b.curvature, Dense) for b in blocks)
    groups = _groups(blocks, per_layer)
    squares = [sum(float(theta[n].to(torch.float64).square().sum()) for n in names) for names in groups]
    sizes = [sum(theta[n].numel() for n in names) for names in groups]
    values = [] if dense_layers else [_eigenvalues([b for b in blocks if b.names[0] in g]) for g in groups]
    now = [float(deltas[names[0]]) for names in groups]
    factor = 1.0
    for _ in range(_ITERATIONS):
        if dense_layers:
            spread = blocks[0].scaled(1 / factor).traces(_named(groups, now, deltas))
            traces = [float(spread[names[0]]) for names in groups]
        else:
            traces = [float((v / factor + d).reciprocal().sum()) for v, d in zip(values, now, strict=True)]
        gammas = [max(0.0, n - d * t) for n, d, t in zip(sizes, now, traces, strict=True)]
        before = [*now, factor]
        if choose_prior:
            now = [_towards(d, gamma, square) for d, gamma, square in zip(now, gammas, squares, strict=True)]
        if errors is not None:
            factor = (float(errors) + factor * sum(gammas)) / n_targets
        moved = max(abs(math.log(a / b)) for a, b in zip([*now, factor], before, strict=True))
        if moved < _TOLERANCE:
            break
    return _named(groups, now, deltas), factor


def best_on_held_out(deltas: Deltas, loss: Callable[[Deltas], float]) -> Deltas:
    """The precision of the grid with the least loss, the same for every parameter; ties go to the larger one."""
    tried = [{name: torch.full_like(old, value) for name, old in deltas.items()} for value in GRID]
    losses = [loss(candidate) for candidate in tried]
    best = min(losses)
    return tried[max(i for i, value in enumerate(losses) if value == best)]


def _towards(delta: float, gamma: float, square: float) -> float:
    aim = gamma / square if square > 0 else _MOST
    return min(max(math.sqrt(delta * min(max(aim, _LEAST), _MOST)), _LEAST), _MOST)


def _groups(blocks: Sequence[Block], per_layer: bool) -> list[tuple[str, ...]]:
    if not per_layer:
        return [tuple(n for b in blocks for n in b.names)]
    return [
        names for b in blocks for names in ([(n,) for n in b.names] if isinstance(b.curvature, Dense) else [b.names])
    ]


def _named(groups: Sequence[tuple[str, ...]], values: Sequence[float], like: Deltas) -> Deltas:
    found = {name: value for names, value in zip(groups, values, strict=True) for name in names}
    return {name: torch.full_like(old, found[name]) for name, old in like.items()}


def _eigenvalues(blocks: Sequence[Block]) -> Tensor:
    parts = []
    for block in blocks:
        c = block.curvature
        if isinstance(c, Dense):
            parts.append(torch.linalg.eigvalsh(c.matrix).clamp(min=0))
        elif isinstance(c, Kronecker):
            parts.append((c.left_values[:, None] * c.right_values).flatten())
        else:
            parts.append(c.diagonal.flatten())
    return torch.cat(parts)
