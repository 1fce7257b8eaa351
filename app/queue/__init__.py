"""The machinery of jobs: a queue in the database, workers that lease jobs from it, children that run them.

From outside use `queue` (enqueue, cancel, retry), `context` (what a handler sees of its job), `executors` (how a job's
tasks run) and `handlers`, which names the function that runs each kind of job.
"""
