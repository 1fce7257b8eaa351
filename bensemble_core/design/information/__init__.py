"""What a design promises: expected information gain and other expected utilities, each with its error.

From outside use `eig` (`estimate`), `accuracy` (estimates that are sharpened until they hold), `batch` (several designs
at once) and `information` (what an outcome has taught). `nodes` places quadrature points, `tables` holds likelihoods
at them and `shelf` keeps those, `expected_utility` averages a utility over outcomes, and `bounds` samples where there
is no table.
"""
