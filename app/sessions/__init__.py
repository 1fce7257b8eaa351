"""Sessions of an experiment: what to run next, what came out, what is known now.

From outside use `state` (a session as it stands, and how it is changed) and `propose.proposing_jobs`.
"""
