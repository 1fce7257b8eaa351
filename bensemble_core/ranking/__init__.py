"""Which rows next: score a stream of rows, keep a short list, choose from it.

From outside use the names below; `scoring` runs chunks of rows through an ensemble and an acquisition, `ranking` turns
scores into picks, `kept` names the scores that a service may store for later questions.
"""

from bensemble_core.ranking.ranking import Ranking, choose, conclude, rank
from bensemble_core.ranking.scoring import score, score_columns

__all__ = ["Ranking", "choose", "conclude", "rank", "score", "score_columns"]
