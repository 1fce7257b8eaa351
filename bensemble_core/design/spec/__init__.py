"""From JSON to a checked model: parameters with priors, a space of designs, outcomes and their likelihoods.

From outside use `spec` (`read_spec`), `model` (what a spec states, ready to be computed with) and `spaces` (designs as
rows of numbers). `reading` refuses what is malformed and points at it, `expressions` is the only place where text
becomes arithmetic; `families`, `continuous` and `counting` are the outcomes' distributions, `priors` and `blocks` the
parameters'.
"""
