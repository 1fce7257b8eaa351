"""Posteriors over functions: `gp`, Gaussian-process regression, and `vip`, regression over functions of the network.

From outside use the classes, through the registry. `evidence` is the regression of `gp`, and how its hyper-parameters
are found.
"""
