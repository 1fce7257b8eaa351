"""Strategies of a backtest: ways of choosing rows and of learning from them, and those that are played by default."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, TypeAlias

from bensemble_core import options
from bensemble_core.acquisition import ACQUISITIONS, resolve_pair
from bensemble_core.acquisition.defaults import left_out
from bensemble_core.backtesting.curves import DEFAULT, RANDOM
from bensemble_core.errors import InvalidOption
from bensemble_core.problem import AnyModel
from bensemble_core.ranking.ranking import check_combination
from bensemble_core.types import Family, Posterior

ALL_LABELS: Final = "all labels"  # the run that learns from the whole pool at once
AnyPosterior: TypeAlias = str | Mapping[str, Any] | Posterior


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A way of choosing rows and of learning from them; what is None is the default of the backtest."""

    name: str
    acquisition: Any = None  # name, {"name": …} or options, as `rank` takes them
    selection: Any = None
    posterior: AnyPosterior | None = None
    model: AnyModel = None
    first: Mapping[str, Any] | None = None  # acquisition and selection of the first batch; None: as the service

    def choice(self) -> dict[str, Any]:
        """As `PATCH /v1/projects/{id}` takes it: null is the default, and a posterior or model only where named."""
        named = {"acquisition": _as_json(self.acquisition), "selection": _as_json(self.selection)}
        return {
            **named,
            **({} if self.posterior is None else {"posterior": _as_json(self.posterior)}),
            **({} if self.model is None else {"model": _as_json(self.model)}),
        }


AnyStrategy: TypeAlias = str | Mapping[str, Any] | Strategy
PRESETS: dict[str, Strategy] = {
    DEFAULT: Strategy(name=DEFAULT),
    RANDOM: Strategy(name=RANDOM, acquisition="random", selection="top_k"),
    "margin": Strategy(name="margin", acquisition="margin", selection="top_k"),
    "entropy": Strategy(name="entropy", acquisition="entropy", selection="top_k"),
    "bald": Strategy(name="bald", acquisition="bald", selection="top_k"),
    "power_bald": Strategy(name="power_bald", acquisition="bald", selection="power"),
    "variance": Strategy(
        name="variance", acquisition={"name": "predictive_variance", "part": "epistemic"}, selection="top_k"
    ),
    "kcenter": Strategy(name="kcenter", selection="kcenter"),
}
_PLAYED: dict[Family, tuple[str, ...]] = {
    "categorical": (DEFAULT, "margin", "power_bald", RANDOM),
    "gaussian": (DEFAULT, "variance", "kcenter", RANDOM),
}


def resolve_strategies(given: Sequence[AnyStrategy] | None, family: Family) -> tuple[Strategy, ...]:
    """Those to play, the default and random rows among them; names are checked, not yet what they mean."""
    found = [_strategy(each) for each in (_PLAYED[family] if given is None else given)]
    names = [each.name for each in found]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidOption(f"the strategies' names must differ; {repeated[0]!r} is there twice")
    for each in found:
        if each.name == ALL_LABELS or (each.name in (DEFAULT, RANDOM) and each.choice() != PRESETS[each.name].choice()):
            raise InvalidOption(f"{each.name!r} is the name of what is always played; give this strategy another")
    control = [PRESETS[name] for name in (DEFAULT, RANDOM) if name not in names]
    return (*control, *found)


def check_choice(acquisition: object | None, selection: object | None, family: Family) -> None:
    """Raise InvalidOption unless these may choose in all rounds of a task, with nothing else to be sent along."""
    found, how = resolve_pair(acquisition, selection, family)
    check_combination(found, how, family)
    if "target" in ACQUISITIONS[found.name].needs:
        raise InvalidOption(f"{found.name} needs a target set with every ranking, so that it cannot be a fixed choice")


def _strategy(given: AnyStrategy) -> Strategy:
    if isinstance(given, str):
        if given not in PRESETS:
            raise InvalidOption(
                f"there is no strategy {given!r}; name one of {', '.join(PRESETS)}, or state one as "
                '{"name": …, "acquisition": …, "selection": …}'
            )
        return PRESETS[given]
    if isinstance(given, Strategy):
        return given
    known = [each.name for each in fields(Strategy)]
    unknown = [each for each in given if each not in known]
    if unknown or not isinstance(given.get("name"), str):
        raise InvalidOption(f"a strategy has a name and any of {', '.join(known[1:])}; got {dict(given)!r}")
    return Strategy(**given)


def _as_json(given: Any) -> Any:
    given = left_out(given)
    if isinstance(given, str):
        return {"name": given}
    if given is None or isinstance(given, Mapping):
        return None if given is None else dict(given)
    if not is_dataclass(given):
        raise InvalidOption(f"a {type(given).__name__} of your own cannot be sent to the service; name one that it has")
    return options.to_json(given)
