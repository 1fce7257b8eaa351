"""Backtests: strategies played on a pool whose labels exist, beside random rows, and which one to take."""
