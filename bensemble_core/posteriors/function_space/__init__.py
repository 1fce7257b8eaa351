"""Posteriors over functions: their members are functions of rows, and but for `fbnn` no weights of the network.

`gp` is Gaussian-process regression, `vip` regression over functions of the network, `fbnn` holds the functions of a
network's weights to a prior, and `neural_process` learns from many tasks how to predict one. From outside use the
classes, through the registry. `evidence` is the regression of `gp`, and how its hyper-parameters are found; `tasks` is
where those of `neural_process` come from.
"""
