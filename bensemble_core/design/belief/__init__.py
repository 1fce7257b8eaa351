"""What is known of the parameters after some observations: on a grid, as particles, or in closed form.

From outside use `infer`, which chooses the form, `belief` (means, quantiles, draws) and `memory` (what an experiment
keeps between two questions). The folders of information and search read the forms themselves: `points`, `gaussian`,
`nuisances`, `convergence`, `marginals`.
"""
