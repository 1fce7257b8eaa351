"""The one loop that trains networks, all members at once, and what goes into it.

From outside use `descent` (`Descent`, the options that trained methods share, `Run` and `descend`; `Mover` for steps of
another kind), `objectives` (what is minimised), `resuming` (snapshots that a run goes on from) and `datasets` (torch's
datasets, read once).
`early_stopping` and `max_norm` are the loop's own.
"""
