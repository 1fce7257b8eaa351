"""What an ensemble predicts for rows, as distributions, and how good that is.

The only folder that knows the families: callers ask a predictive and never look at its type. From outside use the
names below, `metrics` (accuracy, NLL, calibration errors), `lure` (the loss on a pool from rows that were picked with
known probabilities), `calibration` (temperatures learnt on held-out rows) and `mixtures` (entropies, variances and
quantiles over weighted members, which scores are made of).
"""

from bensemble_core.predictive.predictive import (
    CategoricalPredictive,
    Estimate,
    GaussianPredictive,
    Predictive,
    Uncertainty,
    Values,
    join,
)

__all__ = ["CategoricalPredictive", "Estimate", "GaussianPredictive", "Predictive", "Uncertainty", "Values", "join"]
