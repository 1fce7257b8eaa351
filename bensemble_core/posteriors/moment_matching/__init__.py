"""Beliefs over weights carried from row to row by their moments: `pbp` is the method, `propagation` the pass through
the layers, `filtering` the walk over the rows, `gamma` the beliefs over precisions.

From outside use the class, through the registry.
"""
