"""How many labels a backtest needs, and how far those that there are go."""

from collections.abc import Mapping
from typing import Any

from bensemble_core.errors import InvalidData, InvalidOption

POOL, TEST, TEST_SHARE = 4_000, 1_000, 4  # most rows to choose from, and to measure on: a quarter of all
ROUNDS = 10


def n_test(n_labels: int) -> int:
    """Labelled rows that are measured on."""
    return min(TEST, n_labels // TEST_SHARE)


def n_pool(n_labels: int) -> int:
    """Labelled rows that can be asked for."""
    return min(POOL, n_labels - n_test(n_labels))


def check_labels(n_labels: int, classes: Mapping[Any, int] | None, *, k: int) -> None:
    """Raise InvalidData where labels are too few to say anything; `classes` are how often each occurs."""
    needed = 3 * k + 20
    if n_labels < needed:
        raise InvalidData(
            f"a backtest with k = {k} needs at least {needed} labelled rows (3 k + 20), a quarter of which is measured "
            f"on; there are {n_labels}. Label {needed - n_labels} more, or take a smaller k."
        )
    if classes is None:
        return
    if len(classes) < 2:
        raise InvalidData("a backtest of classes needs labels of at least 2 classes; all labels here are the same")
    if single := [str(name) for name, count in classes.items() if count == 1]:
        shown = ", ".join(single[:5]) + (", …" if len(single) > 5 else "")
        raise InvalidData(
            f"a class that was seen once can be learnt or measured, not both, and {len(single)} of {len(classes)} "
            f"classes were: {shown}. Label at least 1 more row of each, or leave these rows out."
        )


def check_rounds(n_labels: int, rounds: int | None, k: int) -> int:
    """The number of rounds that are played; InvalidOption where there are too few labelled rows for those asked for."""
    most = n_pool(n_labels) // k
    if rounds is None:
        return min(ROUNDS, most)
    if rounds > most:
        raise InvalidOption(
            f"{rounds} rounds of k = {k} ask for {rounds * k:,} labels, and {n_pool(n_labels):,} of the {n_labels:,} "
            f"labelled rows can be asked for; take at most {most} rounds, or a smaller k"
        )
    return rounds
