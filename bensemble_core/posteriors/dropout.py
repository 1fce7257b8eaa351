"""Monte Carlo dropout."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import InvalidModel
from bensemble_core.members import gather, zero_rows
from bensemble_core.models.transforms import MASK, FixedMasks, RandomMasks, layers_in_order, mask_shape
from bensemble_core.posteriors.start import start_members
from bensemble_core.randomness import borrowed, derive, draw_seed
from bensemble_core.training import Descent, descend, split_extra
from bensemble_core.types import Aim, Data, Problem, Report, Tensors, silent


@dataclass(frozen=True, kw_only=True)
class MCDropout(Descent):
    """Dropout kept on at prediction (Gal & Ghahramani 2016): a member is θ under one mask, z ~ Bernoulli(1 − rate).

    The input of every linear and convolution layer but the first to run is multiplied by z / (1 − rate), features or
    whole channels at a time; with `mask_inputs`, and where there is only one layer, the first one's too. For one
    linear layer Var f(x) = rate / (1 − rate) Σ w²x². Training draws a fresh mask per row and step; a member draws one
    mask for all rows, so that identical rows get identical predictions. Layers that a module does not call as layers
    (inside nn.LSTM, nn.MultiheadAttention) are not masked. A module's own weights are the start.
    """

    name: Literal["mc_dropout"] = "mc_dropout"
    rate: float = field(default=0.1, metadata={"gt": 0, "lt": 1, "description": "share of features dropped"})
    mask_inputs: bool = field(default=False, metadata={"description": "also drop features of the rows themselves"})
    aims: ClassVar[Aim] = "none"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = True

    def fit(
        self,
        problem: Problem,
        data: Data,
        *,
        rng: torch.Generator,
        warm: Tensors | None = None,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> dict[str, Tensor]:
        """State: every tensor of the model under its own name, [1, ...]."""
        seeds = [derive(draw_seed(rng), 0)]
        theta, fixed = start_members(problem, seeds, warm=warm, from_weights=True, device=data.x.device)
        masks = RandomMasks(layers=self._masked_layers(problem, {**theta, **fixed}), rate=self.rate)
        trained = descend(
            problem,
            data,
            theta=theta,
            fixed=fixed,
            options=self,
            seeds=seeds,
            transform=masks,
            resume=resume,
            report=report,
        )
        return {**trained.theta, **trained.fixed}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """n masks; θ is shared."""
        layers = self._masked_layers(problem, state)
        module = problem.model.skeleton()
        device = next(iter(state.values())).device
        stacked = {}
        for layer in layers:
            shape = mask_shape(module.get_submodule(layer))
            keep = torch.empty(n, *shape, dtype=problem.dtype)  # [M, D], or [M, C, 1, 1] before a convolution
            keep.bernoulli_(1 - self.rate, generator=rng).div_(1 - self.rate)
            stacked[f"{layer}.{MASK}" if layer else MASK] = keep.to(device)
        shared = {k: v[0] for k, v in state.items()}
        return Ensemble(problem=problem, stacked=stacked, shared=shared, transform=FixedMasks(layers=layers))

    def cost(self, n_parameters: int) -> int:
        return n_parameters * self.epochs

    def _masked_layers(self, problem: Problem, state: Tensors) -> tuple[str, ...]:
        """In the order in which the network calls them, found by running a row of zeros."""
        one = split_extra({k: v[0] for k, v in state.items()})[0]
        members = gather(problem, state, {}, mode="loop")
        row = zero_rows(problem, 1, next(iter(state.values())).device)
        with borrowed(0), torch.no_grad():
            layers = layers_in_order(members.module, lambda: members.one(one, {}, row))
        if not layers:
            raise InvalidModel(
                "mc_dropout masks the inputs of linear and convolution layers, and this module calls none; "
                "use another posterior"
            )
        return tuple(layers if self.mask_inputs or len(layers) == 1 else layers[1:])
