"""Distributions over weights that are fitted by a bound.

`mfvi` is mean field, `renyi` its α-divergences, `vogn` mean field by Newton steps, `bbvi` without slopes of the
likelihood, `ris` on moments of hidden units, and `mnf` has weights correlated through factors. `elbo` is the evidence
lower bound, `local` the local reparameterisation, noise on outputs in place of weights, `unit_moments` has the
importance draws of `ris` and `flows` the invertible maps of `mnf`.

From outside use the classes and `prune`, through the registry.
"""
