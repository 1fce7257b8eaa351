"""Unbiased implicit variational inference."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from bensemble_core.posteriors.implicit.entropies import auxiliary_gain, entropy_bracket, exact_reverse, mixing_gains
from bensemble_core.posteriors.implicit.mixing import NET, Draws, Mixed, Mixture
from bensemble_core.randomness import generator
from bensemble_core.training.descent import COUNTED_ROWS

_MIXING = 1000  # fresh z for each draw of `bound`
_LEAPFROG = 1_000_000  # weights × rows that are trained in the time of a leapfrog step of few chains, 50 µs
_PLACES = 32  # at which the slope of h is looked at, for the mass


@dataclass(frozen=True, kw_only=True)
class UIVI(Mixed):
    """Weights of any shape, mixed over a hidden z, by the slope of their log density (Titsias & Ruiz 2019).

    w = μ + A h(z) + σ ε with z ~ N(0, I) of `rank` numbers, A [P, rank], h a small network (`hidden`) or the identity.
    The gradient of the evidence lower bound through w needs no density, only its slope, which is a mean over the z that
    may have made w:

        ∇L = E [(∇_w log p(D, w) − ∇_w log q(w)) ∂w/∂λ],    ∇_w log q(w) = E_{z' ~ q(z' | w)} ∇_w log q(w | z').

    z' is drawn by Hamiltonian Monte Carlo, a chain for each w, from the z that made it: this is a draw of q(z' | w) as
    it is, so that chains start where they should end. But it has to be forgotten: where z' keeps a correlation c with
    z, a share c of the entropy's slope is lost, and q comes out too narrow. Hence `burn_in` trajectories before the
    first of the `draws` that are averaged. A trajectory has `leapfrog` steps and a length of U(½, 1½) × π/2 in units of
    q(z' | w), as far as h is close to linear: the mass is I + E Jᵀ(A/σ)ᵀ(A/σ)J, J the slope of h at fresh z. All of
    this is in `rank` numbers: no chain sees the network. The slope is noisy, by about 1/σ for one z': where it does not
    settle, take more `draws`.

    `Fitted.bound` is the evidence lower bound: exact (to its draws) where h is the identity, else from below, as that
    of `sivi` with 1,000 mixing draws. Departures: the mass, where the paper tunes a step size along the way, and h as
    in `sivi`. The noise of a likelihood is a point with a flat prior; with `patience` the held-out loss is that of the
    network at μ.
    """

    name: Literal["uivi"] = "uivi"
    burn_in: int = field(
        default=2, metadata={"ge": 0, "le": 1000, "description": "trajectories of a chain over z before the first kept"}
    )
    draws: int = field(default=5, metadata={"ge": 1, "le": 1000, "description": "draws kept of each chain over z"})
    leapfrog: int = field(default=4, metadata={"ge": 1, "le": 1000, "description": "leapfrog steps of a trajectory"})

    def cost(self, n_parameters: int) -> int:
        """Of the network, and of the chains over z, as weights whose training would take as long."""
        steps = self.epochs * (self.burn_in + self.draws) * self.leapfrog
        each = _LEAPFROG + self.samples * self.rank * (self.rank + self.hidden)
        return super().cost(n_parameters) + steps * each // min(self.batch_size, COUNTED_ROWS)

    def entropy(self, q: Mixture, draws: Draws, seed: int) -> Tensor:
        """Something with the gradient of the entropy; by value a bound on it from below, with S mixing draws."""
        held, rng = q.detach(), generator(seed)
        z = reverse_draws(held, draws, burn_in=self.burn_in, n=self.draws, leapfrog=self.leapfrog, rng=rng)
        surrogate = -(density_slope(held, draws, z) * draws.weights).sum(-1).mean()
        with torch.no_grad():
            ratios = held.log_ratios(draws, held.bend(held.draw_z(1, len(draws.z), rng=rng)))
            value = held.conditional_entropy(draws) + mixing_gains(ratios)[0].mean()
        return value + surrogate - surrogate.detach()

    def entropy_bound(self, q: Mixture, draws: Draws, seed: int) -> float:
        if q.net is not None:
            return entropy_bracket(q, draws, _MIXING, seed)[0]
        with torch.no_grad():
            root, slope = exact_reverse(q)
            units = (draws.weights - q.mean) * (-q.log_sd).exp()
            gain = auxiliary_gain(draws.z, units, slope, torch.zeros_like(draws.z[0]), root)
            return float(q.conditional_entropy(draws) + gain)


def density_slope(q: Mixture, draws: Draws, z: Tensor) -> Tensor:
    """∇_w log q(w | z') = −(ε + (A/σ)(h(z) − h(z')))/σ, averaged over draws z' [T, S, R]: [S, P], held."""
    with torch.no_grad():
        apart = draws.h - q.bend(z).mean(0)
        return -(draws.epsilon + apart @ q.scaled.mT) * (-q.log_sd).exp()


def reverse_draws(q: Mixture, draws: Draws, *, burn_in: int, n: int, leapfrog: int, rng: torch.Generator) -> Tensor:
    """n draws of q(z' | w) for each w, one after another on a chain from its own z; q is held: [n, S, R].

    In coordinates in which the mass is 1: position z Λ, slope (∂/∂z) Λ⁻ᵀ, where ΛΛᵀ is the mass.
    """
    draws = draws.detach()
    root = torch.linalg.cholesky(_mass(q, rng))
    back = torch.linalg.solve_triangular(root, torch.eye(len(root), dtype=root.dtype, device=root.device), upper=False)
    along = draws.epsilon @ q.scaled  # (A/σ)ᵀ ε [S, R]

    def energy(position: Tensor) -> tuple[Tensor, Tensor]:
        """−log q(z' | w) up to a constant of w [S], and its slope [S, R]."""
        z = position @ back
        h, pull = _bend(q, z)
        apart = draws.h - h
        push = apart @ q.gram
        value = (apart * (0.5 * push + along)).sum(-1) + 0.5 * z.square().sum(-1)
        return value, (z - pull(push + along)) @ back.mT

    with torch.no_grad():
        position = draws.z @ root
        value, slope = energy(position)
        kept = []
        for i in range(burn_in + n):
            momentum = q.draw_z(len(position), rng=rng)
            chance = torch.rand(2, len(position), 1, generator=rng, dtype=position.dtype, device=rng.device)
            chance = chance.to(position.device)
            size = 0.5 * math.pi * (0.5 + chance[0]) / leapfrog  # of each chain its own: [S, 1]
            place, speed, now = position, momentum - 0.5 * size * slope, slope
            for j in range(leapfrog):
                place = place + size * speed
                level, now = energy(place)
                speed = speed - (1.0 if j + 1 < leapfrog else 0.5) * size * now
            gain = value - level + 0.5 * (momentum.square() - speed.square()).sum(-1)
            taken = chance[1, :, 0].log() < gain.nan_to_num(nan=-math.inf)
            position = torch.where(taken[:, None], place, position)
            value, slope = torch.where(taken, level, value), torch.where(taken[:, None], now, slope)
            if i >= burn_in:
                kept.append(position @ back)
        return torch.stack(kept)


def _bend(q: Mixture, z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """h(z), and the function that takes a to Jᵀa with J the slope of h there; written out, as chains ask so often."""
    if q.net is None:
        return z, lambda a: a
    inner, outer = q.tensors[NET + "inner.weight"][0], q.tensors[NET + "outer.weight"][0]
    t = torch.addmm(q.tensors[NET + "inner.bias"][0], z, inner.mT).tanh()
    h = z + torch.addmm(q.tensors[NET + "outer.bias"][0], t, outer.mT)
    return h, lambda a: a + ((a @ outer) * (1 - t.square())) @ inner


def _mass(q: Mixture, rng: torch.Generator) -> Tensor:
    """I + E Jᵀ G J over fresh z, about the precision of q(z' | w): [R, R]."""
    rank = len(q.gram)
    one = torch.eye(rank, dtype=q.gram.dtype, device=q.gram.device)
    if q.net is None:
        return one + q.gram
    z = q.draw_z(_PLACES, rng=rng).repeat_interleave(rank, 0)
    slopes = _bend(q, z)[1](one.repeat(_PLACES, 1)).view(_PLACES, rank, rank)  # J, row by row
    return one + (slopes.mT @ q.gram @ slopes).mean(0)
