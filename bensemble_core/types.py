"""The nouns of the library on one page.

A posterior draw is a set of named tensors: what differs between members is `stacked` (leading axis M), what does not
is `shared`. All randomness is spent in `sample`; `predict` is deterministic.

Axes, everywhere in this order: M members, N rows, C classes, D inputs, T targets, O network outputs, K picks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from bensemble_core import display
from bensemble_core.display import Described
from bensemble_core.errors import InvalidData

if TYPE_CHECKING:
    from bensemble_core.ensemble import Ensemble
    from bensemble_core.predictive import Predictive

Tensors: TypeAlias = Mapping[str, Tensor]
Shapes: TypeAlias = dict[str, tuple[int, ...]]  # of named tensors
Snapshot: TypeAlias = Callable[[], dict[str, Tensor]]


Progress: TypeAlias = Callable[[int, int, str], None]
"""Done, total and a message, called often; to stop the work, raise."""


class Report(Protocol):
    """Progress and cancel in one: called often; to stop the work, raise. `snapshot()` is what `fit(resume=…)` takes."""

    def __call__(self, done: int, total: int, message: str, snapshot: Snapshot) -> None: ...


class Augment(Protocol):
    """Rows made new each time they are trained on: x [B, ...] in the units handed in -> the same shape.

    All chance comes from `rng`, which is a function of (member's seed, step): the same training gives the same bits.
    (torch's global generator is lent from the same seed, for transforms that know no other.) Labels are kept.
    """

    def __call__(self, x: Tensor, rng: torch.Generator) -> Tensor: ...


def silent(done: int, total: int, message: str, snapshot: Snapshot) -> None:
    """The default report, which does nothing."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Data(Described):
    """Labelled rows; inside the library already standardised, on one device, in one dtype."""

    x: Tensor  # [N, ...]
    y: Tensor  # [N] classes (int64), or [N, T] targets
    task: Tensor | None = None  # [N] number of the task a row belongs to, for methods that learn over several
    augment: Augment | None = None  # applied to every batch of a descent, not to held-out rows nor to predictions
    unlabelled: Tensor | None = None  # [U, ...] rows of the pool: they say how inputs scale and what labels stand for

    def __post_init__(self) -> None:
        if self.task is None:
            return
        came = f"{self.task.dtype} of shape {list(self.task.shape)}" if isinstance(self.task, Tensor) else None
        whole = isinstance(self.task, Tensor) and not (self.task.is_floating_point() or self.task.is_complex())
        if not whole or tuple(self.task.shape) != (self.n_rows,):
            raise InvalidData(
                f"task has to be a tensor of whole numbers, one for each of the {self.n_rows} rows, got "
                f"{came or f'a value of type {type(self.task).__name__}; pass torch.as_tensor(task)'}"
            )
        if self.n_rows and int(self.task.min()) < 0:
            raise InvalidData(f"tasks are counted from 0, got {int(self.task.min())}")

    @property
    def n_rows(self) -> int:
        return int(self.x.shape[0])

    def _facts(self) -> dict[str, object]:
        x, y = (f"{display.kind(values)['dtype']} {list(values.shape)}" for values in (self.x, self.y))
        tasks = None if self.task is None else torch.unique(self.task).numel()
        return {"rows": self.n_rows, "x": x, "y": y, "tasks": tasks, "device": self.x.device}

    def take(self, rows: Tensor | slice) -> Data:
        """Some of the rows, with their labels and tasks."""

        def of(values: Tensor) -> Tensor:
            return values[rows if isinstance(rows, slice) else rows.to(values.device)]

        return replace(self, x=of(self.x), y=of(self.y), task=None if self.task is None else of(self.task))


class Model(Protocol):
    """A network by name or by module: what its tensors are called and how to build its skeleton."""

    @property
    def input_shape(self) -> tuple[int, ...]: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def integers(self) -> bool:
        """Rows are indices into an embedding: neither standardised nor made floating."""
        ...

    def skeleton(self) -> nn.Module:
        """A module of our own to run tensors through; its values mean nothing."""
        ...

    def initialise(self, seed: int, *, dtype: torch.dtype) -> dict[str, Tensor]:
        """Fresh parameters and buffers under their own names, on the CPU; the global generator is left as it was."""
        ...

    def given(self, *, dtype: torch.dtype) -> dict[str, Tensor] | None:
        """The weights the caller handed in, if the model came with some."""
        ...

    def to_json(self) -> dict[str, Any]: ...


Family: TypeAlias = Literal["categorical", "gaussian"]


class Likelihood(Protocol):
    """p(y | outputs): how many outputs it needs, log p of a row, and the predictive in the units of y."""

    family: ClassVar[Family]

    def bind(self, y: Tensor, *, n_outputs: int | None, standardise: bool) -> Likelihood:
        """The same likelihood with what the labels determine: how many classes or targets, and their scale."""
        ...

    @property
    def n_outputs(self) -> int: ...
    def encode(self, y: Tensor, *, dtype: torch.dtype) -> Tensor:
        """Labels as the network is trained on them: checked, standardised."""
        ...

    def start(self, *, dtype: torch.dtype) -> dict[str, Tensor]:
        """Parameters of the likelihood itself that are learnt with the weights (log-noise), named `likelihood/…`."""
        ...

    def log_prob(self, outputs: Tensor, y: Tensor, extra: Tensors) -> Tensor:
        """log p(y | outputs) of standardised targets: outputs [..., N, O], y [..., N(, T)] -> [..., N]."""
        ...

    def fisher_root(self, outputs: Tensor, extra: Tensors) -> Tensor:
        """S [N, O, R] with SSᵀ the Fisher information of a row's outputs: what a Gauss-Newton curvature is made of."""
        ...

    def predictive(self, outputs: Tensor, extra: Tensors, log_weights: Tensor | None) -> Predictive:
        """Member outputs [M, N, O] as distributions over y in its own units."""
        ...

    def to_json(self) -> dict[str, Any]: ...


Over: TypeAlias = Literal["weights", "functions"]


def over(entry: object) -> Over:
    """What a prior or a posterior is over, as its class says by `over: ClassVar[Over]`; weights, unless it says so."""
    found: Over = getattr(entry, "over", "weights")
    return found


class Prior(Protocol):
    """p(θ) over the raw parameters of the network (not over the likelihood's own).

    One whose class has `over = "functions"` is a `FunctionPrior`; its `log_prob` is there to refuse.
    """

    def log_prob(self, theta: Tensors) -> Tensor:
        """Named [M, ...] tensors -> [M]."""
        ...

    def to_json(self) -> dict[str, Any]: ...


@runtime_checkable
class FunctionPrior(Protocol):
    """p(f) by the mean and covariance of f at any rows, in the units of x and y that were handed in."""

    over: ClassVar[Over]

    def mean(self, x: Tensor) -> Tensor:
        """[N, ...] -> [N, 1], the same for every target."""
        ...

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariance of f between rows: [N, ...], [P, ...] -> [N, P]."""
        ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scaling(Described):
    """The model sees (x − mean) / scale; targets are scaled inside the likelihood."""

    mean: Tensor  # broadcasts against a row
    scale: Tensor

    def _facts(self) -> dict[str, object]:
        return {"mean": list(self.mean.shape), "scale": list(self.scale.shape), **display.kind(self.mean)}

    def __call__(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale

    def to(self, device: torch.device | str | torch.dtype) -> Scaling:
        return Scaling(mean=self.mean.to(device), scale=self.scale.to(device))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Problem(Described):
    """What is inferred: the network, likelihood and prior of p(y | x, θ) p(θ)."""

    model: Model
    likelihood: Likelihood
    prior: Prior | None  # None is maximum likelihood
    scaling: Scaling | None = None
    dtype: torch.dtype = torch.float32

    def _facts(self) -> dict[str, object]:
        return {
            "model": display.network(self.model),
            "input": list(self.model.input_shape),
            "outputs": self.model.n_outputs,
            "likelihood": display.likelihood(self.likelihood),
            "prior": self.prior or "none",
            "standardised": self.scaling is not None,
            "dtype": str(self.dtype).removeprefix("torch."),
        }

    def to(self, device: torch.device | str) -> Problem:
        return self if self.scaling is None else replace(self, scaling=self.scaling.to(device))


Aim: TypeAlias = Literal["none", "mean_field", "exact"]


class Posterior(Protocol):
    """A method of inference: a frozen dataclass of hyper-parameters, without data and weights.

    `aims` says what the draws converge to on a linear-Gaussian problem: the exact posterior, the best factorised one,
    or nothing (a point, a fixed number of members, or a spread with no such promise). Data handed to `fit` is
    standardised by `problem`. A class with `over = "functions"` infers functions, not the weights of the network; it
    is fitted with a prior over functions or, where the caller named none, finds its own.
    """

    aims: ClassVar[Aim]
    batches: ClassVar[bool]  # trained in batches of rows, which `augment` may change
    resumes: ClassVar[bool]  # fit(resume=snapshot) goes on bit for bit; otherwise it starts again from its seed
    starts_from_weights: ClassVar[bool]  # the weights of an nn.Module are the start; otherwise it is re-initialised

    @property
    def name(self) -> str: ...

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
        """The finished state."""
        ...

    def sample(self, problem: Problem, state: Tensors, n: int, *, rng: torch.Generator) -> Ensemble:
        """Exactly n draws of a density; min(n, S) evenly thinned of S kept members."""
        ...

    def expected(self, problem: Problem, state: Tensors) -> Shapes:
        """Every name and shape of a state of this problem: what a file is checked against.

        Sizes that only a state knows (members kept, a rank) are read from the given one, which may lack anything.
        """
        ...

    def cost(self, n_parameters: int) -> int:
        """Members × parameters × epochs: what a service may cap before it starts."""
        ...


@runtime_checkable
class Checks(Protocol):
    """A posterior that is not for every problem: asked before any work, and by a service before it queues any."""

    def check(self, problem: Problem) -> None:
        """Raise InvalidOption or InvalidModel with advice where `fit` could not be done; no tensor is allocated."""
        ...


@runtime_checkable
class Updates(Protocol):
    """A posterior that can be the prior of new rows: `Fitted.update` uses it where there is one."""

    def update(
        self,
        problem: Problem,
        state: Tensors,
        data: Data,
        *,
        rng: torch.Generator,
        resume: Tensors | None = None,
        report: Report = silent,
    ) -> dict[str, Tensor]:
        """The state after the new rows, which `data` holds alone."""
        ...


@runtime_checkable
class Unfolds(Protocol):
    """A posterior whose state is not one of plain networks: other methods start warm from what it gives here."""

    def unfold(self, problem: Problem, state: Tensors) -> dict[str, Tensor]:
        """Every tensor of the model under its own name, [M, ...], and where it is learnt the likelihood's own."""
        ...


@runtime_checkable
class Bounds(Protocol):
    """A posterior with a bound on log p(D), or an estimate of one: `Fitted.bound` gives it."""

    def bound(self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator) -> float: ...


@runtime_checkable
class Brackets(Protocol):
    """A posterior whose bound is itself known between two numbers: `Fitted.bracket` gives them."""

    def bracket(
        self, problem: Problem, state: Tensors, data: Data, *, samples: int, rng: torch.Generator
    ) -> tuple[float, float]: ...


@runtime_checkable
class Evidence(Protocol):
    """A posterior that knows log p(D), exactly or by its own approximation: `Fitted.log_evidence` gives it."""

    def log_evidence(self, problem: Problem, state: Tensors) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """What a method knows of how far its draws can be trusted: numbers by name, and a sentence for each doubt."""

    values: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@runtime_checkable
class Diagnoses(Protocol):
    """A posterior that can tell whether its draws are to be trusted: `Fitted.diagnostics` gives it.

    The numbers are tensors of the state, `diagnostics/<name>` [1], so that files keep them.
    """

    def diagnose(self, problem: Problem, state: Tensors) -> Diagnostics: ...


@runtime_checkable
class HoldsOut(Protocol):
    """A posterior that keeps what it predicted of its rows while they were held out: `Fitted.held_out` gives it."""

    def held_out(self, problem: Problem, state: Tensors) -> tuple[Predictive, Tensor]:
        """Predictions of all rows in the order of the data, and which rows were held out: [N] bool."""
        ...


@runtime_checkable
class FunctionSpace(Protocol):
    """A posterior whose outputs have a covariance in closed form: `Fitted.function_variance` gives it."""

    def function_covariance(self, problem: Problem, state: Tensors, x: Tensor) -> Tensor:
        """Of each standardised row, in the units of y where the outputs are means: [N, T, T]."""
        ...


@runtime_checkable
class Analytic(Protocol):
    """A posterior with a predictive in closed form, without draws: `Fitted.predict` gives it."""

    def analytic(self, problem: Problem, state: Tensors, x: Any) -> Predictive: ...


@runtime_checkable
class FitsSplits(Protocol):
    """A posterior that fits several problems with the same network at once: `fit_splits` uses it where there is one."""

    def fit_splits(
        self,
        problems: Sequence[Problem],
        datas: Sequence[Data],
        *,
        rngs: Sequence[torch.Generator],
        report: Report = silent,
    ) -> list[dict[str, Tensor]]: ...


class Transform(Protocol):
    """A method's change to any module: extra named tensors (masks, factors), or another way to call it."""

    @property
    def name(self) -> str: ...

    def prepare(self, module: nn.Module) -> nn.Module:
        """Register the extra tensors as buffers and the hooks that read them; parameter names do not change."""
        ...

    def forward(self, call: Callable[[Tensors, Tensor], Tensor], member: Tensors, shared: Tensors, x: Tensor) -> Tensor:
        """One member's outputs: `call(tensors, x)` runs the prepared module. Usually call({**shared, **member}, x)."""
        ...

    def to_json(self) -> dict[str, Any]: ...
