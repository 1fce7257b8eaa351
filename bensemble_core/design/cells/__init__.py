"""Beliefs and gains where outcomes are measured precisely: mixtures of Gaussian cells, each fitted to all outcomes.

A grid sees a posterior that is some of its spacings wide; an outcome measured to a thousandth leaves one that is not.
Cells need not be as many as the posterior is thin: each is fitted across it. From outside use `uses_cells`,
`cell_belief`, `cell_gains` and `CellBatch`.
"""
