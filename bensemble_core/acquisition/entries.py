"""What a registry entry is, what it is called with, and how a name or a dict becomes checked options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from torch import Tensor

from bensemble_core.acquisition.progress import Tick, silent
from bensemble_core.errors import InvalidOption
from bensemble_core.options import check, make
from bensemble_core.predictive import Predictive
from bensemble_core.types import Progress


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Which rows of the pool are being scored: `count` of them from pool row `first`; and what for."""

    seed: int
    first: int
    count: int
    target: Predictive | None = None  # the same members on the rows to be predicted well; where "target" is a need
    tick: Tick = silent  # called again and again by scores that take long for a chunk; may raise to cancel


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An acquisition: `score(predictive, options, rows)` -> [N]; the higher, the more useful is a row's label.

    Options whose scores the fused pass gives have its `column`, a name of `kernels.COLUMNS`.
    """

    score: Callable[[Any, Any, Rows], Tensor]  # the predictive is None where "ensemble" is not among the needs
    options: type
    needs: tuple[str, ...] = ("ensemble",)
    families: tuple[str, ...] = ("categorical", "gaussian")
    ceiling: Callable[[Any, str, Tensor | None, int], float | None] | None = None  # (options, family, log_weights, M)
    kept: tuple[Any, ...] = ()  # options whose scores cost nothing more once an ensemble has predicted a row
    is_disagreement: Callable[[Any], bool] = lambda _: False  # for these options: 0 where all members predict the same
    negative_for: tuple[str, ...] = ()  # families for which a score may be below 0
    is_coarse: bool = False  # few distinct values, so that a ranking says how many rows tie
    is_uniform: bool = False  # a random number a row, whatever the row: the k highest are a uniform draw


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Rows to choose from; what a selection `needs` is there, the rest may be None."""

    rows: Tensor  # [n] int64, ascending pool rows
    scores: Tensor | None = None  # [n]
    predictive: Predictive | None = None  # n rows
    features: Tensor | None = None  # [n, F], one member's (see `Ensemble.features`), or the rows themselves


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """What a selection may know beside the candidates."""

    seed: int = 0
    labelled_features: Tensor | None = None  # [L, F]; of the same member
    is_uniform: bool = False  # the scores are independent uniform numbers
    report: Progress | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Picks:
    """What a selection chose, and why: for each pick one number, whose kind is `measure`."""

    rows: Tensor  # [k] int64 pool rows, in order
    measure: str  # "score", "probability" of the draw given the earlier ones, "information_gained", "distance", …
    values: Tensor  # [k] float64
    notes: tuple[str, ...] = ()


Selection: TypeAlias = Callable[[Candidates, int, Context], Picks]


class SelectionOptions(Protocol):
    """Options of a selection are themselves the `Selection`: `Power(beta=2.0)(candidates, k, context)`."""

    @property
    def name(self) -> str: ...

    def __call__(self, candidates: Candidates, k: int, context: Context) -> Picks: ...


@dataclass(frozen=True, kw_only=True)
class SelectionEntry:
    """A selection: what of `Candidates` it needs, and how the rows it looks at are found in a large pool."""

    options: type[SelectionOptions]
    needs: tuple[str, ...] = ("scores",)
    families: tuple[str, ...] = ("categorical", "gaussian")
    short_list: Literal["highest", "drawn"] | None = None  # by score, or by a seeded draw; None looks at every row
    takes_negative: Callable[[Any], bool] = lambda _: True  # for these options: scores may be below 0
    is_disagreement: bool = False  # 0 where all members say the same, whatever the score
    uses_labelled: bool = True  # where it needs features: those of labelled rows too, which a replay then needs as well
    scored_by: str | None = None  # the acquisition that goes with it where none is named; None is the family's own


class _HasOptions(Protocol):
    @property
    def options(self) -> type: ...


def resolve(given: object, registry: Mapping[str, _HasOptions], kind: str) -> Any:
    """A name, a dict with a name and options, or an options instance -> a checked options instance."""
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, Mapping):
        if not any(type(given) is entry.options for entry in registry.values()):
            raise InvalidOption(f"{kind} is a name, a dict or an options object, got {given!r}; {_known(registry)}")
        check(given)
        return given
    name = given.get("name")
    if not isinstance(name, str) or name not in registry:
        raise InvalidOption(f"there is no {kind} {name!r}; {_known(registry)}")
    return make(registry[name].options, given)


def _known(registry: Mapping[str, _HasOptions]) -> str:
    return f"known names: {', '.join(registry)}"
