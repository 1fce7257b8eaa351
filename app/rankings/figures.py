"""What is drawn of a ranking: how all scores are distributed, and some rows with what is uncertain about them.

The job that ranks writes it, as one object under the token of its attempt, and the result row names the object: the API
reads it, and never computes it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import bensemble_core as bc
from app.db.tables import RankingResult
from app.errors import Conflict
from app.services import Services
from app.storage.errors import MissingObject

N_BINS = 64
MAX_SAMPLE = 5_000
RANK_AGAIN = "what is drawn of this ranking is not stored; rank again to see it"


@dataclass(frozen=True, kw_only=True, eq=False)
class Figures:
    edges: Tensor  # [65] float64
    counts: Tensor  # [64] int64, rows that could be chosen
    picks: Tensor  # [P] float64, scores of the picks in their order, at most 5,000
    n_picked: Tensor  # [1]: the first so many of the rows below are picks, the others a fair sample of the rest
    rows: Tensor  # [S] int64, in an order whose beginning is a fair sample, too
    scores: Tensor  # [S] float64
    aleatoric: Tensor | None = None  # [S] float64; None without an ensemble
    epistemic: Tensor | None = None


def figures_key(ranking_id: str, token: int) -> str:
    return f"figures/{ranking_id}/{token}.safetensors"


def store_figures(services: Services, key: str, figures: Figures) -> None:
    tensors = {name: value for name, value in vars(figures).items() if value is not None}
    services.objects.put(key, bc.save_tensors(tensors))


def read_figures(services: Services, result: RankingResult) -> Figures:
    if result.figures_key is None:
        raise Conflict(RANK_AGAIN)
    try:
        return Figures(**bc.load_tensors(services.objects.get(result.figures_key)))
    except MissingObject as error:
        raise Conflict(RANK_AGAIN) from error


def histogram(scores: Tensor) -> tuple[Tensor, Tensor]:
    """64 bins of equal width from the least to the greatest, the last one closed: edges [65], counts [64]."""
    low, high = float(scores.min()), float(scores.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts = torch.zeros(N_BINS, dtype=torch.int64)
    for part in torch.split(scores, 2**20):  # in float64, which tells apart what float32 rounds together
        at = ((part.double() - low) * (N_BINS / (high - low))).long().clamp(0, N_BINS - 1)
        counts += torch.bincount(at, minlength=N_BINS)
    edges = low + (high - low) * torch.arange(N_BINS + 1, dtype=torch.float64) / N_BINS
    return edges, counts
