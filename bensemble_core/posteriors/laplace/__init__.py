"""A Gaussian at the best fit, by the curvature there: `laplace` is the method, `network` what it needs to know of one,
`curvature` the Gauss-Newton factors, `evidence` and `held_out` how the prior is chosen, `state` the form that is saved.

From outside use the class, through the registry.
"""
