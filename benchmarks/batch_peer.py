"""scikit-activeml's part of `benchmarks/batch.py`, in an environment of its own: `batch_peer.py FILE badge|kcenter K`.

FILE is an npz with features [N, F], probs [N, C] and labelled [L, F]. Prints JSON: seconds, peak memory, rows. Without
arguments it says that it can be imported, which is all that `make bench-batch_peer` is for.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import skactiveml
from peak import with_peak
from skactiveml.base import SkactivemlClassifier
from skactiveml.pool import Badge, CoreSet


class Given(SkactivemlClassifier):  # type: ignore[misc]
    """A classifier whose probabilities and embedding are known: BADGE is measured, and not a network."""

    def __init__(self, probs: Any = None, features: Any = None) -> None:
        super().__init__(classes=None, missing_label=np.nan)
        self.probs, self.features = probs, features

    def fit(self, x: Any, y: Any, sample_weight: Any = None) -> "Given":
        return self

    def predict_proba(self, x: Any, embed: bool = False) -> Any:
        return (self.probs, self.features) if embed else self.probs


def by_badge(data: Any, k: int) -> list[int]:
    features, unknown = data["features"], np.full(len(data["features"]), np.nan)
    query = Badge(clf_embedding_flag_name="embed", random_state=0)
    rows = query.query(features, unknown, Given(data["probs"], features), fit_clf=False, batch_size=k)
    return [int(row) for row in rows]


def by_kcenter(data: Any, k: int) -> list[int]:
    x = np.concatenate([data["features"], data["labelled"]])
    y = np.concatenate([np.full(len(data["features"]), np.nan), np.zeros(len(data["labelled"]))])
    return [int(row) for row in CoreSet(random_state=0).query(x, y, batch_size=k)]


PEERS: dict[str, Callable[[Any, int], list[int]]] = {"badge": by_badge, "kcenter": by_kcenter}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?")
    parser.add_argument("what", nargs="?", choices=sorted(PEERS))
    parser.add_argument("k", nargs="?", type=int)
    given = parser.parse_args()
    if given.file is None:
        print(f"scikit-activeml {skactiveml.__version__} on Python {sys.version.split()[0]}")
        return
    data = dict(np.load(given.file))
    PEERS[given.what]({name: values[:50] for name, values in data.items()}, 2)  # first calls load libraries
    start = time.process_time()
    rows, peak_mb = with_peak(lambda: PEERS[given.what](data, given.k))
    print(json.dumps({"seconds": time.process_time() - start, "peak_mb": peak_mb, "rows": rows}))


if __name__ == "__main__":
    main()
