"""Why a row was chosen, for a person: what each member says of it, and how its uncertainty splits up."""

from typing import Any

from torch import Tensor

import bensemble_core as bc

MOST_CLASSES = 10


def explain_picks(task: dict[str, Any], predictive: bc.Predictive) -> list[dict[str, Any] | None]:
    """One object a row. Classes: shares of the members' votes and mean probabilities, the likeliest first, in nats;
    numbers: the members' means and their spread, in the units of the label."""
    if isinstance(predictive, bc.CategoricalPredictive):
        return _of_classes(task["classes"], predictive)
    split = predictive.decompose("variance")
    columns = {
        "members": predictive.means.transpose(0, 1),  # [N, M] or [N, M, T]
        "mean": predictive.mean(),
        "total_sd": split.total.sqrt(),
        "aleatoric_sd": split.aleatoric.sqrt(),
        "epistemic_sd": split.epistemic.sqrt(),
    }
    values = {name: column.tolist() for name, column in columns.items()}
    return [{name: rows[i] for name, rows in values.items()} for i in range(predictive.n_rows)]


def _of_classes(classes: list[Any], predictive: bc.CategoricalPredictive) -> list[dict[str, Any] | None]:
    votes, mean, split = predictive.votes(), predictive.mean(), predictive.decompose("entropy")
    n_shown = min(MOST_CLASSES, len(classes))

    def shown(values: Tensor) -> tuple[dict[str, float], float]:
        """The largest, and the sum of the rest."""
        ordered, at = values.sort(descending=True, stable=True)
        pairs = zip(ordered[:n_shown].tolist(), at[:n_shown].tolist(), strict=True)
        return {str(classes[c]): value for value, c in pairs if value > 0}, float(ordered[n_shown:].sum())

    shares, probabilities = [shown(row) for row in votes], [shown(row) for row in mean]
    return [
        {
            "votes": shares[i][0],
            "probabilities": probabilities[i][0],
            "n_left_out": len(classes) - n_shown,
            "votes_left_out": shares[i][1],
            "probability_left_out": probabilities[i][1],
            "total": float(split.total[i]),
            "aleatoric": float(split.aleatoric[i]),
            "epistemic": float(split.epistemic[i]),
        }
        for i in range(predictive.n_rows)
    ]
