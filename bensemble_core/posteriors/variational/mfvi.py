"""Mean-field variational inference, and pruning of what it finds."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidOption
from bensemble_core.io import above, below
from bensemble_core.posteriors.gaussian import (
    LOG_SD,
    PRUNED,
    Earlier,
    Factorised,
    prior_in,
    split_points,
    total_kl,
)
from bensemble_core.posteriors.noise_belief import NoiseBelief
from bensemble_core.posteriors.variational.elbo import Elbo, Expects, estimate_elbo
from bensemble_core.posteriors.variational.local import LocalNoise, find_local
from bensemble_core.training.descent import Run, count_steps
from bensemble_core.types import Aim, Data, Problem, Tensors

if TYPE_CHECKING:
    from bensemble_core.fitting import Fitted

_SLOWER = 0.1  # how fast the log of a learnt prior scale may fall, over how fast log σ can move


@dataclass(frozen=True, kw_only=True)
class MFVI(Factorised):
    """The Gaussian with independent weights that comes closest to the posterior (Graves 2011; Blundell et al. 2015).

    Closest by the evidence lower bound, which it maximises:

        L = (1/T) Σ_n E_q log p(y_n | x_n, θ) − KL(q ‖ p),

    on batches as (N/B) Σ_batch; the KL to the Normal prior in closed form. T ≠ 1 tempers the likelihood alone.

    In training, with `local_reparameterisation`, the noise is drawn for a layer's outputs (Kingma et al. 2015, see
    local.py); a layer the network does not call exactly once with rows on its first axis, and every other
    parameter, draws weights. Where a Gaussian likelihood meets a last linear layer its expectation over that layer is
    taken in closed form. Members are draws of the weights. Through batch normalisation the rows of a batch meet, which
    the bound of Kingma et al. does not allow for.

    prior_scale="learnt": one prior sd for each parameter tensor, maximising L: s² = mean(μ² + σ²) (empirical Bayes);
    "ard": one for the weights that leave each input of a layer (the second axis of a weight). At once, that s would fit
    the weights as they start, before they say anything, and pull all of them to 0 (Blundell et al. 2015, section 3.3,
    met the same); so log s falls from the given scale at most a tenth as fast as a step of Adam can move log σ, by
    lr/10 a step, and after few steps it is still on its way. This is no cure for L itself: with far more weights than
    rows it grows as weights are switched off, a q that says nothing may have the larger L, and a long training with
    learnt scales predicts worse than one with a fixed scale chosen on held-out rows.

    adversarial=λ > 0 (Zhang et al. 2022; they take .8) trains against noise that is worse than what was drawn. From
    the draw ε of a step, ε' is found by `adversarial_steps` steps ε ← ε + α sign ∇_ε (−log p(D | μ + σε)), α =
    `adversarial_size`, and the loss is

        (1 − λ) (−L at ε) + λ (−log p(D | μ + σε') / T).

    It draws weights whatever `local_reparameterisation` says, and runs the network steps + 2 times a step. It is no
    bound, and q is no longer closest to the posterior: the KL counts 1 − λ, and weights are asked to bear ε'.

    Points (biases and normalisation by option) are MAP estimates under the prior, the noise of a likelihood is a point
    with a flat one. With `patience` the held-out loss is that of the network of means.

    `update` takes q as the prior of new rows, see gaussian.py.
    """

    name: Literal["mfvi"] = "mfvi"
    temperature: float = field(
        default=1.0,
        metadata={
            "gt": 0,
            "le": 1e6,
            "search": ("log", 0.01, 2.0),
            "description": "likelihood to the power 1/temperature; prior as is",
        },
    )
    local_reparameterisation: bool = field(
        default=True, metadata={"description": "in training, draw the outputs of layers rather than their weights"}
    )
    samples: int = field(default=1, metadata={"ge": 1, "le": 100_000, "description": "draws a step"})
    prior_scale: Literal["fixed", "learnt", "ard"] = field(
        default="fixed",
        metadata={"description": "sd of the prior: as given, learnt per parameter tensor, or learnt per input"},
    )
    adversarial: float = field(
        default=0.0,
        metadata={
            "ge": 0,
            "le": 1,
            "description": "share of the loss at noise that is moved to raise it; 0 is off, the paper has 0.8",
        },
    )
    adversarial_steps: int = field(
        default=5, metadata={"ge": 0, "le": 1000, "description": "steps by which that noise is moved"}
    )
    adversarial_size: float = field(
        default=0.02, metadata={"ge": 0, "le": 10, "description": "size of each, in standard deviations of a weight"}
    )
    aims: ClassVar[Aim] = "mean_field"

    def cost(self, n_parameters: int) -> int:
        passes = self.samples * (self.adversarial_steps + 2 if self.adversarial else 1)
        return n_parameters * (passes * self.epochs + self.map_epochs)

    def run(self, start: Run, prior: Tensors, earlier: Earlier | None = None) -> Run:
        travel = _SLOWER * self.lr * self.epochs * count_steps(start.data.n_rows, self.batch_size)
        known = earlier or Earlier()
        objective, transform = self._objective(
            start.problem,
            start.theta,
            start.fixed,
            prior,
            known.pruned,
            learn=self.prior_scale if earlier is None else "fixed",
            travel=travel,
            belief=known.belief,
        )
        return replace(start, objective=objective, transform=transform, mode=None if transform is None else "loop")

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float:
        """L on all rows, in nats and the units of y, given the points: an estimate from `samples` draws.

        Under `prior_scale` other than "fixed", and after an update, the prior is the one in the state.
        """
        theta, points = split_points(state)
        objective, transform = self._objective(problem, theta, points, prior_in(state), below(PRUNED, state))
        return estimate_elbo(objective, transform, problem, state, data, samples=samples, rng=rng)

    def _objective(
        self,
        problem: Problem,
        theta: Tensors,
        fixed: Tensors,
        prior: Tensors,
        pruned: Tensors,
        *,
        learn: Literal["fixed", "learnt", "ard"] = "fixed",
        travel: float = 0.0,
        belief: NoiseBelief | None = None,
    ) -> tuple[Elbo, LocalNoise | None]:
        layers: tuple[str, ...] = ()
        head: str | None = None
        if self.local_reparameterisation and not self.adversarial:
            layers, head = find_local(problem, {**theta, **fixed}, set(below(LOG_SD, theta)))
        if not isinstance(problem.likelihood, Expects):
            head = None
        local = [f"{layer}.{p}" if layer else p for layer in layers for p in ("weight", "bias")]
        objective = Elbo(
            temperature=self.temperature,
            samples=self.samples,
            prior=prior,
            learn=learn,
            travel=travel,
            local=frozenset(name for name in local if LOG_SD + name in theta),
            takes_moments=head is not None,
            extra=split_extra(fixed)[1],
            pruned=pruned,
            belief=belief,
            worst=self.adversarial,
            worse_steps=self.adversarial_steps,
            worse_size=self.adversarial_size,
        )
        return objective, LocalNoise(layers=layers, head=head) if layers else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Pruned:
    """The result of `prune`: the posterior with weights at 0, and what it costs to send."""

    fitted: "Fitted"
    share: float  # of the weights with a distribution that are now 0
    n_kept: int
    bits: float  # to send the network: KL(q ‖ p) / ln 2 of the weights kept, and which those are
    bits_before: float  # KL(q ‖ p) / ln 2 of all of them


def prune(fitted: "Fitted", *, threshold: float | None = None, share: float | None = None) -> Pruned:
    """Set weights with a small |μ|/σ to exactly 0 (Graves 2011, section 4.4): those below `threshold`, or a `share`.

    A pruned weight is 0 for sender and receiver, so its divergence is 0 instead of infinite; to say which ones are
    costs n H(share) bits, H the binary entropy. Bits-back coding of the others under the prior they were fitted with
    costs KL(q ‖ p) / ln 2. An update keeps them at 0.
    """
    sds = below(LOG_SD, fitted.state)
    if not sds or any(k.startswith("flow/") for k in fitted.state):  # there the mean of a weight is random
        raise InvalidOption(
            f"prune needs a mean and a standard deviation for each weight, which {fitted.posterior.name} does not "
            "keep; use mfvi"
        )
    if (threshold is None) == (share is None):
        raise InvalidOption("prune takes either threshold=… (of |μ|/σ) or share=… (of the weights)")
    if share is not None and not 0 <= share <= 1:
        raise InvalidOption(f"prune: share is from 0 to 1, got {share!r}")
    if threshold is not None and not threshold >= 0:
        raise InvalidOption(f"prune: threshold is at least 0, got {threshold!r}")
    already = below(PRUNED, fitted.state)
    ratios = {k: fitted.state[k].abs().double() / v.double().exp() for k, v in sds.items()}
    ratios = {k: v.masked_fill(already[k], -1.0) if k in already else v for k, v in ratios.items()}
    flat = torch.cat([v.flatten() for v in ratios.values()])
    if share is None:
        gone = flat < (threshold or 0.0)
    else:
        gone = torch.zeros_like(flat, dtype=torch.bool)
        gone[flat.argsort(stable=True)[: round(share * flat.numel())]] = True
    gone |= flat < 0
    parts = torch.split(gone, [v.numel() for v in ratios.values()])
    masks = {k: part.view_as(v) for part, (k, v) in zip(parts, ratios.items(), strict=True)}
    state = {**fitted.state, **above(PRUNED, masks)}
    for name, mask in masks.items():
        state[name] = fitted.state[name].masked_fill(mask, 0.0)
    wide = {k: v.double() for k, v in state.items() if v.is_floating_point()}
    before = {k: v.double() for k, v in fitted.state.items() if v.is_floating_point()}
    n, n_gone = flat.numel(), int(gone.sum())
    which = n * _binary_entropy(n_gone / n)
    return Pruned(
        fitted=replace(fitted, state=state),
        share=n_gone / n,
        n_kept=n - n_gone,
        bits=float(total_kl(wide, wide, masks)) / math.log(2) + which,
        bits_before=float(total_kl(before, before, already)) / math.log(2),
    )


def _binary_entropy(p: float) -> float:
    return 0.0 if p in (0.0, 1.0) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)
