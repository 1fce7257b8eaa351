"""Distributions that are drawn from easily and whose density is an integral: weights mixed over a hidden z.

`mixing` is the one family of the folder; `hvi` is a way to the entropy that its bound needs, whose formulas
are in `entropies`.
From outside use the classes, through the registry.
"""
