"""Posteriors by name: one file per family. Adding one is a file, a line here, and a row in the contract test."""

from bensemble_core.posteriors.dropout import MCDropout
from bensemble_core.posteriors.ensembles import DeepEnsemble
from bensemble_core.posteriors.point import MAP

POSTERIORS: dict[str, type[MAP] | type[DeepEnsemble] | type[MCDropout]] = {
    "map": MAP,
    "deep_ensemble": DeepEnsemble,
    "mc_dropout": MCDropout,
}

__all__ = ["MAP", "POSTERIORS", "DeepEnsemble", "MCDropout"]
