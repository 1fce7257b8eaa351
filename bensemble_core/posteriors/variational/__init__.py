"""Distributions over weights that are fitted by a bound: `mfvi` (mean field), `renyi` (its α-divergences), `vogn` (mean
field by Newton steps) and `bbvi` (without slopes of the likelihood); `elbo` is the evidence lower bound, `local` the
local reparameterisation, noise on outputs in place of weights.

From outside use the classes and `prune`, through the registry.
"""
