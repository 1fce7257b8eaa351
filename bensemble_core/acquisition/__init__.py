"""Which rows to label: scores (`ACQUISITIONS`) and ways to pick k of them (`SELECTIONS`).

From outside use the names below; ranking also uses `entries`, `progress`, and `fused.kernels`, several scores in one
pass. Adding a score or a selection is a file and a line here.
"""

from typing import Any

from bensemble_core.acquisition.defaults import Auto, default_acquisition, default_pair, left_out
from bensemble_core.acquisition.entries import (
    Candidates,
    Context,
    Entry,
    Picks,
    Rows,
    Selection,
    SelectionEntry,
    SelectionOptions,
    resolve,
)
from bensemble_core.acquisition.scores.chance import Random, random, score_random
from bensemble_core.acquisition.scores.disagreement import (
    LeastConfidence,
    Margin,
    MeanStd,
    PredictiveVariance,
    VariationRatio,
    least_confidence,
    margin,
    mean_std,
    predictive_variance,
    score_least_confidence,
    score_margin,
    score_mean_std,
    score_predictive_variance,
    score_variation_ratio,
    variation_ratio,
)
from bensemble_core.acquisition.scores.information import (
    Bald,
    Eig,
    Entropy,
    bald,
    eig,
    entropy,
    information_ceiling,
    score_entropy,
    score_information,
)
from bensemble_core.acquisition.scores.targeted import Epig, epig, epig_ceiling, gaussian_epig, score_epig
from bensemble_core.acquisition.selections.batch import BatchBald
from bensemble_core.acquisition.selections.diversity import Badge, ClusterMargin, KCenter, TypiClust
from bensemble_core.acquisition.selections.selection import Power, TopK
from bensemble_core.acquisition.selections.shortlist import short_list, short_list_size
from bensemble_core.options import document
from bensemble_core.types import Family

ACQUISITIONS: dict[str, Entry] = {
    "bald": Entry(
        score=score_information,
        options=Bald,
        ceiling=information_ceiling,
        kept=(Bald(),),
        is_disagreement=lambda _: True,
    ),
    "entropy": Entry(score=score_entropy, options=Entropy, kept=(Entropy(),), negative_for=("gaussian",)),
    "variation_ratio": Entry(
        score=score_variation_ratio,
        options=VariationRatio,
        families=("categorical",),
        kept=(VariationRatio(),),
        is_disagreement=lambda _: True,
        is_coarse=True,
    ),
    "predictive_variance": Entry(
        score=score_predictive_variance,
        options=PredictiveVariance,
        kept=(PredictiveVariance(part="total"), PredictiveVariance(part="epistemic")),
        is_disagreement=lambda options: options.part == "epistemic",
    ),
    "eig": Entry(
        score=score_information,
        options=Eig,
        ceiling=information_ceiling,
        is_disagreement=lambda _: True,
    ),
    "least_confidence": Entry(
        score=score_least_confidence,
        options=LeastConfidence,
        families=("categorical",),
        kept=(LeastConfidence(),),
    ),
    "margin": Entry(score=score_margin, options=Margin, families=("categorical",), kept=(Margin(),)),
    "mean_std": Entry(score=score_mean_std, options=MeanStd, kept=(MeanStd(),), is_disagreement=lambda _: True),
    "epig": Entry(
        score=score_epig,
        options=Epig,
        needs=("ensemble", "target"),
        ceiling=epig_ceiling,
        is_disagreement=lambda _: True,
    ),
    "random": Entry(score=score_random, options=Random, needs=(), is_uniform=True),
}

SELECTIONS: dict[str, SelectionEntry] = {
    "top_k": SelectionEntry(options=TopK),
    "power": SelectionEntry(options=Power, takes_negative=lambda options: options.form != "power"),
    "batchbald": SelectionEntry(
        options=BatchBald,
        needs=("scores", "predictive"),
        short_list="highest",
        is_disagreement=True,
        scored_by="bald",
    ),
    "badge": SelectionEntry(
        options=Badge, needs=("predictive", "features"), families=("categorical",), short_list="drawn"
    ),
    "kcenter": SelectionEntry(options=KCenter, needs=("features",), short_list="drawn"),
    "typiclust": SelectionEntry(options=TypiClust, needs=("features",), short_list="drawn"),
    "cluster_margin": SelectionEntry(
        options=ClusterMargin, needs=("scores", "features"), short_list="highest", uses_labelled=False
    ),
}
document(*(entry.options for entry in ACQUISITIONS.values()), *(entry.options for entry in SELECTIONS.values()))


def resolve_acquisition(given: object) -> Any:
    """A name, a dict such as {"name": "bald", "estimate": "mixture"} or an options object -> checked options."""
    return resolve(given, ACQUISITIONS, "acquisition")


def resolve_selection(given: object) -> SelectionOptions:
    """A name, a dict such as {"name": "power", "beta": 2.0} or an options object -> the checked selection."""
    options: SelectionOptions = resolve(given, SELECTIONS, "selection")
    return options


def resolve_pair(
    acquisition: object | None, selection: object | None, family: Family | None, *, is_first: bool = False
) -> tuple[Any, Any]:
    """Both as checked options; where one is None or "auto", what goes with the other and with the likelihood's family.

    `is_first` says that there is no ensemble yet. Where no family is known there is none either.
    """
    acquisition, selection = left_out(acquisition), left_out(selection)
    if acquisition is None and selection is None:
        default = default_pair(family, is_first=is_first)
        acquisition, selection = default.acquisition, default.selection
    how = resolve_selection("top_k" if selection is None else selection)
    if acquisition is None:
        acquisition = default_acquisition(family, how.name, SELECTIONS[how.name], is_first=is_first)
    return resolve_acquisition(acquisition), how


def first_pair(acquisition: object | None, selection: object | None, family: Family) -> tuple[Any, Any, bool]:
    """What chooses before there is an ensemble, for a choice that holds for all rounds: checked options of both, and
    whether the choice itself does without one. Where it does not, the default of first batches chooses."""
    acquisition, selection = left_out(acquisition), left_out(selection)
    if acquisition is None and selection is None:
        return *resolve_pair(None, None, family, is_first=True), True
    options, how = resolve_pair(acquisition, selection, family)
    needs = SELECTIONS[how.name].needs
    if "predictive" in needs or ("scores" in needs and "ensemble" in ACQUISITIONS[options.name].needs):
        return *resolve_pair(None, None, family, is_first=True), False
    return options if "scores" in needs else resolve_acquisition("random"), how, True


def default_notes(
    acquisition: object | None, selection: object | None, family: Family | None, *, is_first: bool = False
) -> tuple[str, ...]:
    """What a reader should know of a ranking for which neither was named: what chose, and why."""
    if left_out(acquisition) is not None or left_out(selection) is not None:
        return ()
    why = default_pair(family, is_first=is_first).why
    return (f"chosen by default: {why}; name an acquisition or selection to override",)


__all__ = [
    "ACQUISITIONS",
    "SELECTIONS",
    "Auto",
    "Badge",
    "Bald",
    "BatchBald",
    "Candidates",
    "ClusterMargin",
    "Context",
    "Eig",
    "Entropy",
    "Entry",
    "Epig",
    "KCenter",
    "LeastConfidence",
    "Margin",
    "MeanStd",
    "Picks",
    "Power",
    "PredictiveVariance",
    "Random",
    "Rows",
    "Selection",
    "SelectionEntry",
    "TopK",
    "TypiClust",
    "VariationRatio",
    "bald",
    "default_notes",
    "eig",
    "entropy",
    "epig",
    "first_pair",
    "gaussian_epig",
    "least_confidence",
    "margin",
    "mean_std",
    "predictive_variance",
    "random",
    "resolve_acquisition",
    "resolve_pair",
    "resolve_selection",
    "short_list",
    "short_list_size",
    "variation_ratio",
]
