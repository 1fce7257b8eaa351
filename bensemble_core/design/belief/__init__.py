"""What is known of the parameters after some observations: on a grid, as particles, or in closed form.

From outside use `infer`, which chooses the form, `belief` (means, quantiles, draws) and `memory` (what an experiment
keeps between two questions).
"""
