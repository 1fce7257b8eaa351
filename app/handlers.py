"""Which function does which kind of job; by name, so that only the process that runs a job imports it."""

HANDLERS = {
    "delete_objects": "app.usecases.delete_things:delete_objects",
    "ingest_pool": "app.usecases.ingest_pool:ingest_pool",
    "predict": "app.usecases.predict:predict",
    "propose": "app.usecases.propose_designs:propose",
    "rank_pool": "app.usecases.rank_pool:rank_pool",
    "score_shards": "app.usecases.rank_pool:score_part",
    "simulate": "app.usecases.simulate_experiment:simulate_experiment",
    "sweep_storage": "app.usecases.sweep_storage:sweep_storage",
    "train_ensemble": "app.usecases.train_ensemble:train_ensemble",
}
QUEUES = {
    "design": ("app.usecases.propose_designs",),
    "ingest": ("app.usecases.ingest_pool",),
    "score": ("app.usecases.rank_pool", "app.usecases.predict", "app.usecases.score_shards:prepare"),
    "simulate": ("app.usecases.simulate_experiment",),
    "train": ("app.usecases.train_ensemble",),
}
"""The queues, and what a worker's child imports, or calls with the settings, ahead of its first job, so that no job
waits for it. Simulations have a queue of their own: a participant who waits for a proposal must not wait for one."""
