"""What there is to choose from: models, posteriors, acquisitions and selections, as REST fields made of the registries.

From outside use `schemas`.
"""
