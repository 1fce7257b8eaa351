"""What there is to choose from: models, posteriors, acquisitions and selections, as REST fields made of the registries.

From outside use `schemas`, and `unions` for a field that is one of several objects by name.
"""
