"""Projects: the task, the shape of a row, the network and the posterior method.

From outside use `targets` (labels as numbers), `create.check_training` and `views`.
"""
