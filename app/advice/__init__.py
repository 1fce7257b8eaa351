"""Advice while labelling: go on, relabel, train or stop, and why. Only reads; what is heavy was computed in trainings
(`app.ensembles.retrospect`). Nothing is used from outside but the routes.
"""
