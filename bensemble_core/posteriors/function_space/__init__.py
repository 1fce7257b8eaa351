"""Posteriors over functions: their members are functions of rows, and no weights of the network that is handed in.

`gp` is Gaussian-process regression, `vip` regression over functions of the network, and `neural_process` learns from
many tasks how to predict one. From outside use the classes, through the registry. `evidence` is the regression of `gp`,
and how its hyper-parameters are found; `tasks` is where those of `neural_process` come from.
"""
