"""Monte Carlo dropout."""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bensemble_core.ensemble import Ensemble
from bensemble_core.ensemble.members import layers_called
from bensemble_core.ensemble.tensors import split_extra
from bensemble_core.errors import InvalidModel, InvalidOption
from bensemble_core.models.transforms import (
    LOGIT,
    MASK,
    ConcreteMasks,
    FixedMasks,
    MaskKind,
    RandomMasks,
    fill_mask,
    join,
    mask_shape,
)
from bensemble_core.posteriors.networks import Networks
from bensemble_core.posteriors.start import check_trainable
from bensemble_core.priors import Normal
from bensemble_core.training.descent import Run, Trained
from bensemble_core.training.objectives import Batch, Forward
from bensemble_core.types import Data, Problem, Shapes, Tensors

_RATE = "input_rate"


@dataclass(frozen=True, kw_only=True)
class MCDropout(Networks):
    """One network with dropout left on: a member is the network under one fixed mask (Gal & Ghahramani 2016).

    The input of every linear and convolution layer but the first to run is multiplied by z / (1 − rate), z ~
    Bernoulli(1 − rate), or with `kind="gaussian"` by z ~ N(1, rate / (1 − rate)) (Srivastava et al. 2014, section 10),
    features or whole channels at a time; with `mask_inputs`, and where there is only one layer, the first one's too.
    For one linear layer Var f(x) = rate / (1 − rate) Σ w²x², of either kind. Training draws a fresh mask per row and
    step; a member draws one mask for all rows, so that identical rows get identical predictions. Layers that a module
    does not call as layers (inside nn.LSTM, nn.MultiheadAttention) are not masked. A module's own weights are the
    start.

    `learn_rates` is concrete dropout (Gal, Hron & Kendall 2017): `rate` is where each layer's own rate p starts, the
    masks of training are continuous (temperature 0.1), and the objective is −(1/N) [Σ log p(y | x, θ) − KL] with, for
    each masked layer of K inputs (channels) and weights W = (1 − p) M, and a prior of sd τ,

        KL = (1 − p) |M|²/(2τ²) − K H(p) = |W|²/(2τ²(1 − p)) − K H(p),   H(p) = −p log p − (1 − p) log(1 − p);

    other weights have the prior as it is, as all have where rates are fixed. Members draw Bernoulli masks at the
    learnt rates, which the state lists as `<layer>.input_rate`.
    """

    name: Literal["mc_dropout"] = "mc_dropout"
    rate: float = field(
        default=0.1,
        metadata={"gt": 0, "lt": 1, "search": ("linear", 0.01, 0.5), "description": "share of features dropped"},
    )
    kind: MaskKind = field(default="bernoulli", metadata={"description": "features are dropped, or made noisy"})
    learn_rates: bool = field(default=False, metadata={"description": "each layer learns its own rate, from rate on"})
    mask_inputs: bool = field(default=False, metadata={"description": "also drop features of the rows themselves"})

    def check(self, problem: Problem) -> None:
        if self.learn_rates and self.kind != "bernoulli":
            raise InvalidOption(
                'mc_dropout: rates are learnt of Bernoulli masks; use kind="bernoulli", or fix the rate of the others'
            )
        if self.learn_rates and problem.prior is not None and not isinstance(problem.prior, Normal):
            raise InvalidOption(
                f"mc_dropout: rates are learnt under a Normal prior, got {type(problem.prior).__name__}; pass "
                "prior=Normal(scale=…), or drop learn_rates"
            )
        self._masked_layers(problem)
        check_trainable(self.name, problem, as_they_are=self.epochs == 0 or self.learn_rates)

    def run(self, problem: Problem, data: Data, *, seeds: list[int], warm: Tensors | None) -> Run:
        run = super().run(problem, data, seeds=seeds, warm=warm)
        layers = self._masked_layers(problem)
        if not self.learn_rates:
            return replace(run, transform=RandomMasks(layers=layers, rate=self.rate, kind=self.kind))
        return replace(
            run,
            theta={**run.theta, **self._start_logits(problem, layers, warm, data.x.device)},
            objective=_Concrete(layers, _input_counts(problem, layers)),
            transform=ConcreteMasks(layers=layers),
        )

    def state(self, run: Run, trained: Trained) -> dict[str, Tensor]:
        """Every tensor of the model under its own name, [1, ...]; learnt rates `<layer>.input_rate` [1, 1]."""
        kept = super().state(run, trained)
        layers = self._masked_layers(run.problem) if self.learn_rates else ()
        rates = {join(k, _RATE): kept.pop(join(k, LOGIT)).sigmoid() for k in layers}
        return {**kept, **rates}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n masks; θ is shared."""
        rates = {k: float(v) for k, v in state.items() if k == _RATE or k.endswith(f".{_RATE}")}
        state = {k: v for k, v in state.items() if k not in rates}
        layers = self._masked_layers(problem)
        module = problem.model.skeleton()
        device = next(iter(state.values())).device
        stacked = {}
        for layer in layers:
            shape = mask_shape(module.get_submodule(layer))
            mask = torch.empty(n, *shape, dtype=problem.dtype)  # [M, D], or [M, C, 1, 1] before a convolution
            rate = rates.get(join(layer, _RATE), self.rate)
            stacked[join(layer, MASK)] = fill_mask(mask, rate, self.kind, rng).to(device)
        shared = {k: v[0] for k, v in state.items()}
        return Ensemble(problem=problem, stacked=stacked, shared=shared, transform=FixedMasks(layers=layers))

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        rates = {join(k, _RATE): (1, 1) for k in self._masked_layers(problem) if self.learn_rates}
        return super().expected(problem, state) | rates

    def _start_logits(
        self, problem: Problem, layers: tuple[str, ...], warm: Tensors | None, device: torch.device
    ) -> dict[str, Tensor]:
        start = torch.full((1, 1), self.rate, dtype=problem.dtype, device=device)
        rates = {k: start if warm is None else warm.get(join(k, _RATE), start).to(start) for k in layers}
        return {join(k, LOGIT): torch.logit(v) for k, v in rates.items()}

    def _masked_layers(self, problem: Problem) -> tuple[str, ...]:
        """In the order in which the network calls them."""
        layers = layers_called(problem)
        if not layers:
            raise InvalidModel(
                "mc_dropout masks the inputs of linear and convolution layers, and this module calls none; "
                "use another posterior"
            )
        return layers if self.mask_inputs or len(layers) == 1 else layers[1:]


@dataclass(frozen=True, eq=False)
class _Concrete:
    """−(1/B) Σ log p(y | x, θ) + KL/N for masked layers with K inputs each."""

    layers: tuple[str, ...]
    inputs: tuple[int, ...]  # K

    def __call__(self, problem: Problem, forward: Forward, theta: Tensors, batch: Batch) -> Tensor:
        tensors, extra = split_extra(theta)
        logits = {k: tensors[join(k, LOGIT)] for k in self.layers}  # [M, 1]
        loss = -problem.likelihood.log_prob(forward(tensors, batch.x), batch.y, extra).mean(-1)
        weights = {k: v for k, v in tensors.items() if k not in {join(name, LOGIT) for name in logits}}
        kl = loss.new_zeros(())
        for (name, logit), n_inputs in zip(logits.items(), self.inputs, strict=True):
            kept = torch.sigmoid(-logit)
            kl = kl + n_inputs * (kept * logsigmoid(-logit) + (1 - kept) * logsigmoid(logit))[:, 0]  # −K H(p)
            if (weight := join(name, "weight")) in weights:  # else it is frozen, or tied to another
                scale = kept.sqrt().reshape(-1, *[1] * (weights[weight].ndim - 1))
                weights[weight] = weights[weight] / scale
        if problem.prior is not None and weights:
            kl = kl - problem.prior.log_prob(weights)
        return loss + kl / batch.n_rows


def _input_counts(problem: Problem, layers: tuple[str, ...]) -> tuple[int, ...]:
    module = problem.model.skeleton()
    return tuple(mask_shape(module.get_submodule(layer))[0] for layer in layers)
