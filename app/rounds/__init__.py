"""Rounds: a ranking's rows handed out to annotators until each is done.

From outside use `advance` (an answer counts) and `schemas`.
"""
