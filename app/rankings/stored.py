"""Requests as they are kept in the database, for schedules to repeat."""

from typing import Any

from app.ensembles.schemas import TrainingIn
from app.methods.schemas import as_json_or_none
from app.rounds.schemas import RoundIn


def stored_round(wanted: RoundIn) -> dict[str, Any]:
    return {
        "pool_id": wanted.pool_id,
        "acquisition": as_json_or_none(wanted.acquisition),
        "selection": as_json_or_none(wanted.selection),
        "k": wanted.k,
        "overlap": wanted.overlap,
        "seed": wanted.seed,
        "retrain": wanted.retrain,
        "target": {"pool_id": wanted.target.pool_id} if wanted.target is not None else None,
    }


def stored_training(wanted: TrainingIn) -> dict[str, Any]:
    return {
        "posterior": as_json_or_none(wanted.posterior),
        "n_members": wanted.n_members,
        "seed": wanted.seed,
        "warm_start": wanted.warm_start,
    }
