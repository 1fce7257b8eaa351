"""Which rows of a large pool a set selection looks at, so that its memory is O(short list) and not O(pool)."""

from typing import Any

import torch
from torch import Tensor

from bensemble_core.acquisition import counter
from bensemble_core.acquisition.entries import SelectionEntry
from bensemble_core.acquisition.selections.tie_break import highest, largest
from bensemble_core.errors import InvalidOption

LEAST, PER_PICK = 5_000, 5  # rows of a short list: at least, and for each pick

OPTION = {
    "ge": 1,
    "le": 1_000_000,
    "description": f"How many rows to look at, at least k; by default {LEAST} or {PER_PICK} a pick, whichever is more",
}


def short_list_option(options: Any) -> str:
    """What sets the size: `short_list`, rows in all, or `candidates_per_pick`."""
    return "candidates_per_pick" if hasattr(options, "candidates_per_pick") else "short_list"


def short_list_size(options: Any, k: int) -> int:
    """What was asked for, in all or a pick; else the larger of 5,000 rows and 5 rows a pick."""
    if short_list_option(options) == "candidates_per_pick":
        return int(options.candidates_per_pick) * k
    if options.short_list is None:
        return max(LEAST, PER_PICK * k)
    size = int(options.short_list)
    if size < k:
        raise InvalidOption(f"{options.name}: short_list has to be at least k = {k}, got {size}")
    return size


def short_list(entry: SelectionEntry, options: Any, rows: Tensor, scores: Tensor, k: int, seed: int) -> Tensor:
    """The rows that a selection looks at, ascending: rows [n], their scores [n] -> [min(n, size)].

    Those with the highest score (ties by the seed) or, for a selection that does not use scores, a uniform draw in
    which a row's random number is a function of (seed, row) alone.
    """
    if entry.short_list is None:
        return rows
    size = short_list_size(options, k)
    if size >= rows.numel():
        return rows
    ids = rows.cpu().numpy()
    if entry.short_list == "highest":
        found = highest(scores.detach().cpu().numpy(), size, seed, ids)
    else:
        found = largest(counter.uniform(seed, ids, counter.SHORT_LIST), size)
    return rows[torch.from_numpy(found).sort().values]
