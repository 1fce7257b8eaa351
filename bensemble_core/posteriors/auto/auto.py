"""The default posterior."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bensemble_core.ensemble import Ensemble
from bensemble_core.errors import InvalidData, InvalidOption
from bensemble_core.likelihoods import Categorical, Gaussian
from bensemble_core.models import Default, ModelSpec
from bensemble_core.options import STRICT
from bensemble_core.posteriors.auto import classes, folded_networks, numbers
from bensemble_core.posteriors.auto.kept import CHOICE, DIAGNOSTICS, held_out
from bensemble_core.predictive import Predictive
from bensemble_core.priors import DEFAULT_PRIOR
from bensemble_core.randomness import draw_seed
from bensemble_core.types import Aim, Data, Diagnostics, Over, Problem, Report, Shapes, Tensors, silent

LARGEST = 5_000  # rows above which networks are trained
_WAYS = ("classes", "numbers", "networks")


@dataclass(frozen=True, kw_only=True)
class Auto:
    """What predicts well from few labels, chosen from the labels: the default where nobody names a posterior.

    *Classes* of flat rows: two softmax regressions under Gaussian priors, one linear, k(x, x') = xᵀx'/D, and one of an
    RBF kernel exp(−d²/(2ℓ²)), on rows standardised and cut to ±10 sd. Each family's prior variance (and ℓ) is the one
    with the best likelihood of rows held out in 5 stratified folds; the families are then weighed by that likelihood
    (stacking, Wolpert 1992, by EM), and one temperature T ≥ 1, log T ~ N(0, 0.3²), fits the mixture to it where it
    clearly helps. The members are the models that each lack one fold, weighed as their family: one and the same
    committee predicts and scores. Above 512 rows the RBF family has 512 centres (Nyström).

    *Numbers* of flat rows, cut to ±3 sd: three Gaussian processes (`gp`), two of them with a linear part, of a
    lengthscale for each input and of one for all, the third linear alone (Bayesian linear regression), their
    hyper-parameters by evidence; weights by stacking, as if 10 rows more spoke for equal ones, and a stretch of the
    spread, from rows left out one at a time. Members are functions drawn from all, their mean that of the processes;
    and one more, that mean with noise twice as wide as the labels, since few labels show few of the values that are
    far out (where the noise is not known). Its weight is stacked, too.

    *Networks* otherwise: where a model or a prior was named, for images, sequences and indices, noise that depends on
    the row, augmentation, or above 5,000 rows. `deep_ensemble` with as many members as folds, each stopped early by a
    fold of its own, all folds used, with a temperature or stretch from what each predicts of its fold.

    With unlabelled rows of the pool (`fit(…, unlabelled=x)`) a labelled row weighs √(½ + pool rows nearest to it), so
    that rows which a ranking picked count as the pool they stand for. `diagnostics` has the figures of the choice.
    """

    name: Literal["auto"] = "auto"
    folds: int = field(default=5, metadata={"ge": 2, "le": 20, "description": "parts of the rows, held out in turn"})
    epochs: int = field(
        default=100, metadata={"ge": 0, "le": 1_000_000, "description": "most passes over the rows of networks"}
    )
    family: Literal["auto", "networks"] = field(
        default="auto", metadata={"description": "networks: train these even where kernels would do"}
    )
    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    aims: ClassVar[Aim] = "none"
    batches: ClassVar[bool] = True
    over: ClassVar[Over] = "weights"
    resumes: ClassVar[bool] = True
    starts_from_weights: ClassVar[bool] = False
    uses_unlabelled: ClassVar[bool] = True

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
        """State: `auto/choice` [1], which way was taken, and what that way keeps, as its file says."""
        if not data.n_rows:
            raise InvalidData("there is nothing to train on: the data has no rows; label some")
        way, seed = self._way(problem, data), draw_seed(rng)
        if way == "classes":
            state = classes.fit(problem, data, n_folds=self.folds, seed=seed, report=report)
        elif way == "numbers":
            state = numbers.fit(problem, data, seed=seed, report=report)
        else:
            old = warm if warm is not None and _way_of(warm) == "networks" else None
            state = folded_networks.fit(
                problem,
                data,
                n_folds=self.folds,
                epochs=self.epochs,
                seed=seed,
                warm=old,
                resume=resume or None,  # the other ways leave no snapshot
                report=report,
            )
        return {CHOICE: torch.tensor([_WAYS.index(way)], device=data.x.device), **state}

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """Of classes and networks at most as many as were kept, with their weights; of numbers n functions."""
        way = _way_of(state)
        if way == "classes":
            return classes.sample(problem, state, n, rng=rng)
        if way == "numbers":
            return numbers.sample(problem, state, n, rng=rng)
        return folded_networks.sample(problem, state, n)

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        way = _way_of(state)
        if way == "classes":
            shapes = classes.expected(problem, state)
        elif way == "numbers":
            shapes = numbers.expected(problem, state)
        else:
            shapes = folded_networks.expected(problem, state, self.folds, self.epochs)
        return {CHOICE: (1,), **shapes}

    def cost(self, n_parameters: int) -> int:
        """Of the networks, which cost more than what is done with few rows."""
        return self.folds * n_parameters * self.epochs

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics:
        """The figures that the choice was made by."""
        found = {k.removeprefix(DIAGNOSTICS): float(v[0]) for k, v in state.items() if k.startswith(DIAGNOSTICS)}
        return Diagnostics(values=found)

    def held_out(self, problem: Problem, state: Tensors) -> tuple[Predictive, Tensor]:
        """Calibrated predictions of every row by what was fitted without it, in the units of y."""
        return held_out(problem, state)

    @staticmethod
    def is_small(state: Tensors) -> bool:
        """Whether kernels or Gaussian processes were fitted, not networks: some hundred rows take about a second."""
        return _way_of(state) != "networks"

    def _way(self, problem: Problem, data: Data) -> str:
        model = problem.model
        is_free = isinstance(model, ModelSpec) and isinstance(model.network, Default)
        is_flat = len(model.input_shape) == 1 and not model.integers
        is_plain = problem.prior is DEFAULT_PRIOR or problem.prior == DEFAULT_PRIOR
        small = data.n_rows <= LARGEST and data.augment is None
        if self.family == "auto" and is_free and is_flat and is_plain and small:
            if isinstance(problem.likelihood, Categorical):
                return "classes"
            if isinstance(problem.likelihood, Gaussian):
                return "numbers"
        return "networks"


def _way_of(state: Tensors) -> str:
    found = int(state[CHOICE][0]) if CHOICE in state and state[CHOICE].numel() else _WAYS.index("networks")
    if not 0 <= found < len(_WAYS):
        raise InvalidOption(f"the state of auto names way {found}, and there are {len(_WAYS)}")
    return _WAYS[found]
