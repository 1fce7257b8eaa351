"""Schedules: train by the clock, after so many labels, or when a round is complete.

From outside use `fire`.
"""
