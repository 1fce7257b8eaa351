"""How k rows are chosen: by score (`selection`: top_k and power), jointly (`batch`: BatchBALD, on `joint`), or to be
unlike each other (`diversity`: BADGE, k-centre, TypiClust and Cluster-Margin, on `clustering`).

From outside use the entries of `SELECTIONS`; `shortlist` bounds what a selection looks at, `tie_break`
orders equal scores by the seed.
"""
