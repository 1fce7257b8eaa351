"""Scores of rows, each a pure function of what the members predict, with its options: `information` (entropy, BALD),
`disagreement` (margins, votes, variances), `targeted` (EPIG), `chance` (random).

From outside use the entries of `ACQUISITIONS`, and the functions as `bensemble_core.acquisition` has them.
"""
