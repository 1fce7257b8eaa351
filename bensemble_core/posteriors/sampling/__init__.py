"""Markov chains over weights: `chains` runs them, `diagnosing` says if they arrived.

A method is a file with its options and a `Kernel`; from outside use the classes that `posteriors` exports.
"""
