"""scikit-activeml's part of `benchmarks/labels_saved.py`, in an environment of its own.

As its documentation has it: strategies ask and a `SklearnClassifier` around scikit-learn's logistic regression answers,
which is also what is measured. The committee is ten such classifiers on bootstraps of the labelled rows, and asks by
vote entropy. Its default, KL divergence, is led by bootstraps that lack a class and give it no probability at all:
areas of .71 beside .81 on pendigits, .73 beside .75 on german_credit and .82 beside .82 on segment, one seed each.
TypiClust needs no labels, and chooses its first rows itself.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from labels_saved_peer import Floats, Given, Ints, Player, run
from skactiveml.classifier import SklearnClassifier
from skactiveml.pool import Badge, QueryByCommittee, TypiClust, UncertaintySampling
from skactiveml.utils import MISSING_LABEL
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression

COMMITTEE = 10


def classifier(given: Given) -> Any:
    estimator = LogisticRegression(max_iter=1000)
    return SklearnClassifier(estimator, classes=np.arange(given.n_classes), random_state=given.seed)


def labels(given: Given, rows: Ints) -> Floats:
    """[N], of which most are missing."""
    y = np.full(len(given.x), MISSING_LABEL)
    y[rows] = given.y[rows]
    return y


def by(query: Callable[[Given, Floats, Any], Any]) -> Player:
    def play(given: Given, rows: Ints) -> tuple[Floats, Callable[[], Any]]:
        y = labels(given, rows)
        model = classifier(given).fit(given.x, y)
        return model.predict_proba(given.test), lambda: query(given, y, model)

    return play


def margin(given: Given, y: Floats, model: Any) -> Any:
    asks = UncertaintySampling(method="margin_sampling", random_state=given.seed)
    return asks.query(given.x, y, clf=model, fit_clf=False, batch_size=given.step)


def committee(given: Given, y: Floats, _: Any) -> Any:
    bagged = BaggingClassifier(classifier(given), n_estimators=COMMITTEE, random_state=given.seed)
    ensemble = SklearnClassifier(bagged, classes=np.arange(given.n_classes), random_state=given.seed)
    asks = QueryByCommittee(method="vote_entropy", random_state=given.seed)
    return asks.query(given.x, y, ensemble=ensemble, batch_size=given.step)


def badge(given: Given, y: Floats, model: Any) -> Any:
    asks = Badge(random_state=given.seed)
    return asks.query(given.x, y, clf=model, fit_clf=False, batch_size=given.step)


def typiclust(given: Given, y: Floats, _: Any) -> Any:
    return TypiClust(random_state=given.seed).query(given.x, y, batch_size=given.step)


def typical_first(given: Given) -> Any:
    asks = TypiClust(random_state=given.seed)
    return asks.query(given.x, labels(given, np.array([], dtype=np.int64)), batch_size=len(given.first))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of bootstraps with a single class, which it then predicts
    run(
        {"margin": by(margin), "qbc": by(committee), "badge": by(badge), "typiclust": by(typiclust)},
        first={"typiclust": typical_first},
    )
