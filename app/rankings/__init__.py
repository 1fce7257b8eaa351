"""Rankings: which rows to label next, asked for here, scored and chosen by a worker, and made again on request.

From outside use `request`, and `round_request` (what a round asks of a ranking).
"""
