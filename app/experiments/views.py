"""Experiments as the API shows them."""

from typing import Any

import torch
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.tables import DesignSession, Experiment
from app.experiments.refusals import refusals
from app.experiments.schemas import DesignVariable, ExperimentItem, ExperimentOut, ModelOut, OutcomeVariable
from bensemble_core import design
from bensemble_core.design.spec.spaces import Variable


def experiment_item(session: Session, row: Experiment) -> ExperimentItem:
    return ExperimentItem.of(row, n_sessions=_n_sessions(session, row))


def experiment_view(session: Session, row: Experiment) -> ExperimentOut:
    return ExperimentOut.of(row, n_sessions=_n_sessions(session, row))


def _n_sessions(session: Session, row: Experiment) -> int:
    query = select(func.count()).select_from(DesignSession).where(DesignSession.experiment_id == row.id)
    return session.scalar(query) or 0


def model_view(experiment: design.Experiment, cap: float) -> ModelOut:
    model = experiment.spec.model
    work = experiment.work()
    with refusals():
        belief = experiment.posterior().method
        method = experiment.method(_some_design(experiment))
    return ModelOut.of(
        work,
        name=experiment.spec.name,
        spec_hash=experiment.hash,
        parameters=list(model.prior.names),
        targets=list(model.prior.targets),
        designs=[variable_view(variable) for variable in model.space.variables],
        n_designs=len(model.space.all()) if model.space.is_listed else None,
        outcomes=[
            OutcomeVariable(
                name=outcome.name,
                family=family_name(experiment, outcome.name),
                is_discrete=outcome.family.is_discrete,
                labels=list(outcome.labels),
            )
            for outcome in model.outcomes
        ],
        eig_method=method,
        belief=belief,
        is_job=work.evaluations > cap,
    )


def family_name(experiment: design.Experiment, name: str) -> str:
    stated = experiment.spec.source.get("outcome", {}).get(name)
    return str(stated["family"]) if stated is not None else "table"


def _some_design(experiment: design.Experiment) -> dict[str, Any]:
    space = experiment.spec.model.space
    row = space.all()[0] if space.is_listed else space.from_unit(torch.full((1, len(space.variables)), 0.5).double())[0]
    return space.decode(row.tolist())


def variable_view(variable: Variable) -> DesignVariable:
    if variable.kind == "values":
        values = list(variable.labels) or [variable.decode(value) for value in variable.values]
        return DesignVariable(name=variable.name, kind="values", values=values)
    return DesignVariable(
        name=variable.name, kind=variable.kind, low=variable.low, high=variable.high, is_log=variable.is_log
    )
