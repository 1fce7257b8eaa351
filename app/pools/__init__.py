"""Pools: rows to choose from and rows to measure on, sent inline or as a file, stored once and never changed.

From outside use `given_rows` (rows that came in a request), `schemas` and `views`.
"""
