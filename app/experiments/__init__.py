"""Experiments: a model of what is measured, a prior, a space of designs; and the catalogue of ready ones.

From outside use `refusals`, `schemas` and `create`.
"""
