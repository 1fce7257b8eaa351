"""A project: the question that is asked of the data, and how it is answered."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

import bensemble_core as bc
from app.methods.schemas import AcquisitionSpec, ModelSpec, PosteriorSpec, SelectionSpec
from app.methods.unions import one_of
from app.projects.display import Display, DisplayIn
from app.web.fields import In, Name, Number, Out, Storable, Whole

ClassName = Annotated[
    Storable,
    Field(min_length=1, max_length=200),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
]


Length = Annotated[Number, Field(gt=0, le=1e9)]


class NormalPrior(In):
    name: Literal["normal"] = "normal"
    scale: Number = Field(1.0, gt=0, le=1e6, description="Standard deviation of every weight, of standardised inputs.")


class DoubleExponentialPrior(In):
    """Density exp(−|θ|/scale)/(2 scale): the prior of the lasso, which pulls weights to 0 whatever their size."""

    name: Literal["double_exponential"]
    scale: Number = Field(1.0, gt=0, le=1e6, description="Mean size of every weight, inputs being standardised.")


class StudentTPrior(In):
    """Heavier tails than a normal prior: a few weights may be large."""

    name: Literal["student_t"]
    df: Number = Field(3.0, gt=0, le=1e6, description="Degrees of freedom; 1 is Cauchy, large ones are normal.")
    scale: Number = Field(1.0, gt=0, le=1e6, description="Of every weight, inputs being standardised.")


class GPPrior(In):
    """A prior over functions, for `gp`, `fbnn` and `neural_process`, in the units of the features and of the numbers
    labelled, or for classes (`fbnn`) of their logits."""

    name: Literal["gp"]
    lengthscale: Length | Annotated[list[Length], Field(min_length=1, max_length=10_000)] = Field(
        description="How far apart in a feature values are alike; one for all, or one for each."
    )
    scale: Number = Field(gt=0, le=1e9, description="Standard deviation of the function anywhere.")
    kernel: Literal["rbf", "matern52"] = "rbf"


def _normal_unless_named(value: Any) -> Any:
    return {"name": "normal", **value} if isinstance(value, dict) and "name" not in value else value


if TYPE_CHECKING:
    Prior = NormalPrior | DoubleExponentialPrior | StudentTPrior | GPPrior
else:
    Prior = Annotated[
        one_of((NormalPrior, DoubleExponentialPrior, StudentTPrior, GPPrior), "name"),
        BeforeValidator(_normal_unless_named),
    ]

Weights = Annotated[
    Prior | None,
    Field(
        description='Prior on every weight, by name: `{"name": "normal", "scale": 1.0}` if left out; `{"scale": 0.3}` '
        "alone is normal; null is maximum likelihood. Methods that need a normal prior refuse others, and "
        "`gp` is for posteriors over functions alone.",
    ),
]


class Classification(In):
    kind: Literal["classification"]
    classes: list[ClassName] = Field(min_length=2, max_length=10_000, description="Names; numbers become text.")
    prior: Weights = NormalPrior(scale=1.0)

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: list[str]) -> list[str]:
        if len(set(classes)) < len(classes):
            raise ValueError("the class names must differ from each other")
        return classes


class Regression(In):
    kind: Literal["regression"]
    outputs: Whole = Field(1, ge=1, le=1000)
    noise: Literal["constant", "by_row"] = Field(
        "constant", description="`constant`: one learnt noise for all rows; `by_row`: the network predicts it."
    )
    prior: Weights = NormalPrior(scale=1.0)


if TYPE_CHECKING:
    Task = Classification | Regression
else:
    Task = one_of((Classification, Regression), "kind")


_PRIOR_OUT: Any = Field(
    default_factory=dict,
    exclude_if=lambda prior: prior == {},
    description="As it was named; null is maximum likelihood. Not there where nobody named one: it is normal then, or "
    "learnt by methods that can.",
)


class ClassificationOut(Out):
    kind: Literal["classification"]
    classes: list[str]
    prior: dict[str, Any] | None = _PRIOR_OUT


class RegressionOut(Out):
    kind: Literal["regression"]
    outputs: int
    noise: Literal["constant", "by_row"]
    prior: dict[str, Any] | None = _PRIOR_OUT


TaskOut = Annotated[ClassificationOut | RegressionOut, Field(discriminator="kind")]


class Input(In):
    shape: list[Annotated[Whole, Field(ge=1, le=1_000_000)]] = Field(
        min_length=1, max_length=4, description="Of one row: [64], or [channels, height, width] for conv nets."
    )


def _as_spelt(value: Any) -> Any:
    """1 is not true: a literal of pydantic's would take it for that."""
    if isinstance(value, bool) or value == "folds":
        return value
    raise ValueError(f'expected true, false or "folds", got {value!r:.100}')


Calibrate = Annotated[Literal[True, False, "folds"], BeforeValidator(_as_spelt)]
_ACQUISITION = Field(
    None,
    description="How rows are scored by rankings and rounds that name neither an acquisition nor a selection; null, or "
    '`"auto"`: what goes with the task. `epig`, which needs a target set with every ranking, is refused.',
)
_SELECTION = Field(None, description="How k rows are taken, of the same rankings and rounds; null: what goes with it.")
CALIBRATE = (
    "One scale on how sure forecasts are, learnt from rows that the training did not see, and applied in predictions, "
    "metrics and scores. true: `auto` from its own folds, other posteriors from the hold-out, where it has 30 rows. "
    '"folds": from five more trainings, each without a fifth of the labels, so that it takes six times as long. false: '
    "none. An evaluation pool is never learnt from."
)


class ProjectIn(In):
    name: Name
    task: Task
    input: Input
    model: ModelSpec = Field(
        default_factory=lambda: {"name": "default"},
        validate_default=True,
        description="The network. Left out, the posterior `auto` is free to take none: from few labels of flat rows, "
        "kernel regressions and Gaussian processes predict better.",
    )
    posterior: PosteriorSpec = Field(
        default_factory=lambda: {"name": bc.DEFAULT_POSTERIOR},
        validate_default=True,
        description="How uncertainty about the model is represented. Left out, `auto` chooses from the labels, and "
        "each ensemble's `diagnostics` say by which figures.",
    )
    holdout: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="Share of the labels that came with a pool kept for metrics, where there is no evaluation pool.",
    )
    acquisition: AcquisitionSpec | None = _ACQUISITION
    selection: SelectionSpec | None = _SELECTION
    calibrate: Calibrate = Field(True, description=CALIBRATE)
    display: DisplayIn | None = Field(None, description="How items are shown to annotators.")


class ProjectPatch(In):
    """What is left out stays as it is."""

    name: Name = Field(default_factory=lambda: "")
    acquisition: AcquisitionSpec | None = _ACQUISITION
    selection: SelectionSpec | None = _SELECTION
    posterior: PosteriorSpec = Field(
        default_factory=lambda: None, description="Of trainings that name none, from the next one on."
    )
    model: ModelSpec = Field(
        default_factory=lambda: None,
        description="The network of the next trainings; ensembles that are there keep theirs.",
    )
    calibrate: Calibrate = Field(default_factory=lambda: True, description=CALIBRATE)
    display: DisplayIn | None = Field(
        None, description="How items are shown to annotators: what it leaves out is no longer said. Null: nothing is."
    )


class InputOut(Out):
    shape: list[int]


class ProjectOut(Out):
    id: str
    name: str
    task: TaskOut
    input: InputOut
    model: dict[str, Any]
    posterior: dict[str, Any]
    holdout: float
    acquisition: dict[str, Any] | None = Field(description="Of rankings that name none; null: what goes with the task.")
    selection: dict[str, Any] | None
    calibrate: bool | Literal["folds"]
    display: Display | None = Field(description="How items are shown to annotators; null: nothing was said of it.")
    current_ensemble_id: str | None
    is_pinned: bool
    created_at: datetime


class ProjectChangeOut(Out):
    n: int = Field(description="1 is the first change of the project.")
    changes: dict[str, list[Any]] = Field(description="Of each field that was changed its value before and after.")
    key_id: str | None = Field(description="The API key by which it came; null without keys.")
    created_at: datetime
