"""Distributions over weights that are fitted by a bound: `mfvi` (mean field), `renyi` (its α-divergences), `vogn` (mean
field by Newton steps), `bbvi` (without slopes of the likelihood) and `ris` (mean field on moments of hidden units).

`elbo` is the evidence lower bound, `local` the local reparameterisation, noise on outputs in place of weights, and
`unit_moments` has the importance draws of `ris`.

From outside use the classes and `prune`, through the registry.
"""
