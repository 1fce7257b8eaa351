"""Posteriors over functions: their members are functions of rows, and no weights of the network that is handed in.

`neural_process` learns from many tasks how to predict one; `tasks` is where those come from.
"""
