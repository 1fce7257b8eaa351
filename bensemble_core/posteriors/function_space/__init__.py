"""Posteriors over functions: Gaussian-process regression.

From outside use `gp`; `evidence` is the regression itself and how its hyper-parameters are found.
"""
