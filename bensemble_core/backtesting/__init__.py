"""Backtests: strategies played on rows whose labels exist, and compared with random rows.

`bc.backtest` is the way in. The service also uses `labels_needed` (whether there are enough labels), `strategies` (what
may choose in all rounds of a task) and `curves` (runs, which it keeps so that a job that was killed goes on).
"""
