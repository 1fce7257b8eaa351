"""Distributions over weights that are fitted by a bound: `mfvi` (mean field), `renyi` (its α-divergences) and `bbvi`
(without slopes of the likelihood); `local` is the local reparameterisation, noise on outputs in place of weights.

From outside use the classes and `prune`, through the registry.
"""
