"""Simulations: an experiment rehearsed on simulated participants, by policy."""
