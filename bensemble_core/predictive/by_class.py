"""How good class predictions are class by class: who is taken for whom, precision, recall, AUROC."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bensemble_core import display
from bensemble_core.display import Described
from bensemble_core.errors import InvalidData
from bensemble_core.predictive.predictive import CategoricalPredictive, Values

MOST_CLASSES = 50  # of a confusion matrix
LARGEST_LOG_ODDS = 20.48
_BINS, _FEWEST_BINS, _ALL_BINS = 4096, 64, 2**20  # of log-odds: of a class, and of all classes together


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClassMetrics(Described):
    """Of each class, and of them all; NaN where nothing can be said: a class that nobody has, or never predicted."""

    n: Tensor  # [C] rows that are of the class
    precision: Tensor  # [C] share of the rows predicted as the class that are
    recall: Tensor  # [C] share of the rows of the class that are predicted as it
    confusion: Tensor | None  # [C, C] rows by true class (down) and predicted class (across); None above 50 classes
    auroc: float  # mean over the classes that occur, each against the others

    def _facts(self) -> dict[str, object]:
        shares = {name: display.numbers(getattr(self, name)) for name in ("n", "precision", "recall")}
        return {**shares, "auroc": f"{self.auroc:.4g}"}


def by_class(predictive: CategoricalPredictive, y: Values) -> ClassMetrics:
    """Confusion matrix, precision, recall and AUROC of the most probable class, or the probabilities, of the mixture.

    AUROC is P(a row of the class has a higher p̄_c than one of another), one class against the others, averaged over the
    classes that some rows have and others do not; with two classes both say the same. Log-odds are counted in bins 0.01
    wide from −20.48 to 20.48 (wider above 256 classes), and rows in one bin as equal, so that memory does not grow with
    the rows: on n rows of smooth scores this is within about 1/n of the exact value.
    """
    counts = ClassCounts()
    counts.add(predictive, y)
    return counts.result()


@dataclass(kw_only=True)
class ClassCounts:
    """`by_class` for a pool that comes in chunks: counts, nothing of a chunk is kept."""

    n: Tensor | None = None  # [C] of each class,
    predicted: Tensor | None = None  # [C] taken for it,
    hits: Tensor | None = None  # [C] and rightly
    confusion: Tensor | None = None  # [C, C]
    histogram: Tensor = field(default_factory=lambda: torch.zeros(0))  # [2, C, B] of other rows, and of the class's own

    def add(self, predictive: CategoricalPredictive, y: Values) -> None:
        log_probs = predictive.log_mean().detach().double()
        n_classes = log_probs.shape[1]
        truth, guess = predictive.classes(y).cpu(), log_probs.argmax(-1).cpu()
        if self.n is None or self.predicted is None or self.hits is None:
            self.n, self.predicted, self.hits = (torch.zeros(n_classes, dtype=torch.int64) for _ in range(3))
            n_bins = max(_FEWEST_BINS, min(_BINS, _ALL_BINS // n_classes))
            self.histogram = torch.zeros(2, n_classes, n_bins, dtype=torch.int64)
            if n_classes <= MOST_CLASSES:
                self.confusion = torch.zeros(n_classes, n_classes, dtype=torch.int64)
        if len(self.n) != n_classes:
            raise InvalidData(f"this evaluation holds rows of {len(self.n)} classes and was given {n_classes}")
        self.n += torch.bincount(truth, minlength=n_classes)
        self.predicted += torch.bincount(guess, minlength=n_classes)
        self.hits += torch.bincount(truth[truth == guess], minlength=n_classes)
        if self.confusion is not None:
            pairs = torch.bincount(truth * n_classes + guess, minlength=n_classes**2)
            self.confusion += pairs.reshape(n_classes, n_classes)
        self._count_odds(log_probs.cpu(), truth)

    def result(self) -> ClassMetrics:
        if self.n is None or self.predicted is None or self.hits is None or not int(self.n.sum()):
            raise InvalidData("there are no rows to evaluate on")
        hits = self.hits.double()
        precision, recall = hits / self.predicted, hits / self.n
        return ClassMetrics(n=self.n, precision=precision, recall=recall, confusion=self.confusion, auroc=self._auroc())

    def _count_odds(self, log_probs: Tensor, truth: Tensor) -> None:
        """Rows whose probabilities are no numbers are left out, and then there is no AUROC."""
        _, n_classes, n_bins = self.histogram.shape
        is_sound = log_probs.isfinite().any(-1) & ~log_probs.isnan().any(-1)
        log_probs, truth = log_probs[is_sound], truth[is_sound]
        odds = log_probs - torch.log(-torch.expm1(log_probs.clamp(max=0)))  # [N, C]; +inf at probability 1
        places = (odds.clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS) / LARGEST_LOG_ODDS + 1) * (n_bins / 2)
        bins = places.floor().long().clamp(max=n_bins - 1) + n_bins * torch.arange(n_classes)
        every = torch.bincount(bins.flatten(), minlength=n_classes * n_bins).reshape(n_classes, n_bins)
        own = torch.bincount(bins.gather(1, truth[:, None])[:, 0], minlength=n_classes * n_bins)
        own = own.reshape(n_classes, n_bins)
        self.histogram = self.histogram + torch.stack([every - own, own])

    def _auroc(self) -> float:
        others, own = self.histogram.double()
        n_others, n_own = others.sum(1), own.sum(1)
        below = others.cumsum(1) - others / 2  # rows of other classes that score lower, ties counting one half
        areas = (own * below).sum(1) / (n_own * n_others)
        occurs = (n_own > 0) & (n_others > 0)
        is_whole = self.n is not None and bool((own.sum(1) == self.n).all())
        return float(areas[occurs].mean()) if is_whole else float("nan")
