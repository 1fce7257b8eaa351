"""Ensembles: trainings, their versions and metrics, predictions, the learning curve and the current version.

From outside use `check_request` and `request` (ask for a training), `queries`, `load`, `schemas`, and
`views.with_errors` (metrics with their standard errors).
"""
