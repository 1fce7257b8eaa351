"""Weights averaged along a training: `swag` (SWA, SWAG and MultiSWAG); `batchnorm` measures the statistics of averaged
networks anew.

From outside use the classes, through the registry.
"""
