"""What chooses where a caller names no acquisition, no selection, or neither; the name "auto" is the same as none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from bensemble_core.acquisition.entries import SelectionEntry
from bensemble_core.errors import InvalidOption
from bensemble_core.options import STRICT
from bensemble_core.types import Family


@dataclass(frozen=True, kw_only=True)
class Auto:
    """What goes with the task, and with whether there is an ensemble: the same as naming nothing."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT
    name: Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Default:
    """An acquisition and a selection that go together, and a reader's answer to why."""

    acquisition: dict[str, Any]
    selection: dict[str, Any]
    why: str


# By the area under the accuracy curve beside random rows, on nine sets of classes: `margin` with `cluster_margin` was
# above on average and nowhere clearly below, `bald` with `top_k` below on four. For numbers the rows of the highest
# variance lie at the pool's edge and next to each other, so that `power` draws; typical rows did not help there.
_WITH_ENSEMBLE: dict[Family, Default] = {
    "categorical": Default(
        acquisition={"name": "margin"},
        selection={"name": "cluster_margin"},
        why="margin with cluster_margin, which asks about rows whose two likeliest classes are close and that differ",
    ),
    "gaussian": Default(
        acquisition={"name": "predictive_variance", "part": "epistemic"},
        selection={"name": "power"},
        why="predictive_variance (epistemic) with power, which draws rows in proportion to how the members differ",
    ),
}
_FIRST_CLASSES = Default(
    acquisition={"name": "random"},
    selection={"name": "typiclust", "random_share": 0.5, "standardise": True},
    why="typiclust with random_share 0.5, which needs no ensemble: one half typical rows, the other random ones",
)
_FIRST: dict[Family, Default] = {
    "categorical": _FIRST_CLASSES,
    "gaussian": Default(
        acquisition={"name": "random"},
        selection={"name": "top_k"},
        why="random with top_k, which needs no ensemble: as first labels, typical rows are no better for numbers",
    ),
}


def left_out(given: object) -> object | None:
    """None where nothing or "auto" was named, else what was."""
    if isinstance(given, Mapping) and given.get("name") == "auto" and len(given) > 1:
        others = ", ".join(str(option) for option in given if option != "name")
        raise InvalidOption(f"auto has no options, got {others}; name what is to have them")
    is_auto = given == "auto" if isinstance(given, str) else isinstance(given, Auto) or given == {"name": "auto"}
    return None if is_auto else given


def default_pair(family: Family | None, *, is_first: bool) -> Default:
    """For a likelihood's family; before there is an ensemble it may be unknown, and is then taken to be of classes."""
    if family is None:
        return _FIRST_CLASSES
    return _FIRST[family] if is_first else _WITH_ENSEMBLE[family]


def default_acquisition(
    family: Family | None, name: str, selection: SelectionEntry, *, is_first: bool
) -> dict[str, Any]:
    """The score for a selection that was named; before there is an ensemble `random`, for those that need no score."""
    if is_first or family is None:
        if "scores" in selection.needs:
            raise InvalidOption(
                f"{name} chooses by scores, and there is no ensemble to score with; before there is one use selection "
                "typiclust or kcenter, or acquisition random"
            )
        return {"name": "random"}
    return {"name": selection.scored_by} if selection.scored_by is not None else _WITH_ENSEMBLE[family].acquisition
