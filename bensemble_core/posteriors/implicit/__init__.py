"""Distributions that are drawn from easily and whose density is an integral: weights mixed over a hidden z.

`mixing` is the one family of the folder; `hvi`, `sivi` and `uivi` are three ways to the entropy that its bound needs,
whose formulas are in `entropies`. From outside use the classes, through the registry.
"""
