"""Ensembles that are trained: independent networks (`deep`), one training's snapshots (`snapshot`), and networks that
share their weights but for rank-one factors (`batch_ensemble`, `rank1`, on `factors`).

From outside use the classes, through the registry.
"""
