"""Projects: the task, the shape of a row, the network and the posterior method.

From outside use `targets` (labels as numbers), `create` (whether a training can be done, and its likelihood and prior),
`schemas` and `views`.
"""
