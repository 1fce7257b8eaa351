"""Examples: projects that make themselves, with data, labels and a schedule, so that a newcomer has something to label.

From outside use `digits` (the data).
"""
