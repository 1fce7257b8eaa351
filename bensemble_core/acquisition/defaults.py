"""What chooses where a caller names no acquisition, no selection, or neither."""

from bensemble_core.acquisition.entries import SelectionEntry
from bensemble_core.errors import InvalidOption
from bensemble_core.types import Family

_ACQUISITION: dict[Family, dict[str, str]] = {
    "categorical": {"name": "margin"},
    "gaussian": {"name": "predictive_variance", "part": "epistemic"},
}
_SELECTION: dict[Family, dict[str, str]] = {"categorical": {"name": "top_k"}, "gaussian": {"name": "power"}}


def default_acquisition(family: Family | None, name: str, selection: SelectionEntry) -> dict[str, str]:
    """The score for a selection and a likelihood's family; a family of None means that there is no ensemble yet.

    On nine sets that no default was chosen on, `margin` had a larger area under the accuracy curve than random rows on
    average and was nowhere clearly below; `bald` was below on four. For numbers `power` draws by the members' spread:
    the rows of the highest spread lie at the pool's edge and next to each other.
    """
    if family is None:
        if "scores" in selection.needs:
            raise InvalidOption(
                f"{name} chooses by scores, and there is no ensemble to score with; before there is one use selection "
                "typiclust or kcenter, or acquisition random"
            )
        return {"name": "random"}
    return {"name": selection.scored_by} if selection.scored_by is not None else dict(_ACQUISITION[family])


def default_selection(family: Family | None, *, is_scored: bool) -> dict[str, str]:
    """`top_k` of a score that was named; else what goes with the default score, or before there is an ensemble."""
    if is_scored:
        return {"name": "top_k"}
    return {"name": "typiclust"} if family is None else dict(_SELECTION[family])
