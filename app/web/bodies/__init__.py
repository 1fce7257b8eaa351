"""Request bodies that may be large: received to a file, cut into pieces, parsed a piece at a time.

From outside use `receive` (a body as it comes) and `long` (fields that are read in pieces).
"""
