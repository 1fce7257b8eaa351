"""Which design to run next: candidates, refinement, ties, and the proposal that is made of them.

From outside use `propose`; `search` finds where to begin and refines, `climb` and `slide` walk inside and along the
edges of the space.
"""
