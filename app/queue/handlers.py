"""Which function does which kind of job; by name, so that only the process that runs a job imports it."""

HANDLERS = {
    "backtest": "app.backtests.run:run_backtest",
    "delete_objects": "app.housekeeping.delete:delete_objects",
    "ingest_pool": "app.pools.ingest:ingest_pool",
    "predict": "app.ensembles.predict:predict",
    "propose": "app.sessions.propose:propose",
    "rank_pool": "app.rankings.run:rank_pool",
    "score_shards": "app.rankings.run:score_part",
    "simulate": "app.simulations.simulate:simulate_experiment",
    "sweep_storage": "app.housekeeping.sweep:sweep_storage",
    "train_ensemble": "app.ensembles.train:train_ensemble",
}
LISTENERS = "app.listeners"  # who runs jobs imports it, for jobs publish events
QUEUES = {
    "design": ("app.sessions.propose",),
    "ingest": ("app.pools.ingest",),
    "score": ("app.rankings.run", "app.ensembles.predict", "app.rankings.score_shards:prepare"),
    "simulate": ("app.simulations.simulate", "app.backtests.run"),
    "train": ("app.ensembles.train",),
}
"""The queues, and what a worker's child imports, or calls with the settings, ahead of its first job, so that no job
waits for it. Simulations and backtests have a queue of their own: a participant who waits for a proposal must not wait
for one."""
