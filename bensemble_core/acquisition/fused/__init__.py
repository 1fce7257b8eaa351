"""Scores of a pool of class predictions in one compiled pass over memory, by numba where it is installed.

From outside use `kernels`, which falls back to torch; `compiled` is the pass, `lanes` and `elementary` what it is
written in.
"""
