"""The form of a trial: what a design consists of, and how its outcome is entered."""

from app.experiments.schemas import Choice, FormOut, OutcomeField
from app.experiments.views import family_name, variable_view
from bensemble_core import design
from bensemble_core.design.spec.model import Variable


def form_view(experiment: design.Experiment) -> FormOut:
    model = experiment.spec.model
    return FormOut(
        designs=[variable_view(variable) for variable in model.space.variables],
        outcomes=[_field(outcome, family_name(experiment, outcome.name)) for outcome in model.outcomes],
        instructions=experiment.spec.instructions or None,
    )


def _field(outcome: Variable, family: str) -> OutcomeField:
    low, high = outcome.ends
    integer = bool(outcome.family.is_discrete)
    if outcome.n_classes is None:
        kind = "count" if integer else "number"
        return OutcomeField.of(
            name=outcome.name, family=family, kind=kind, choices=None, low=low, high=high, integer=integer
        )
    values = [outcome.decode(float(i)) for i in range(outcome.n_classes)]
    choices = [Choice(value=value, label=str(value)) for value in values]
    return OutcomeField(
        name=outcome.name, family=family, kind="choice", choices=choices, low=None, high=None, integer=integer
    )
