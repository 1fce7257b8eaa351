"""A worker whose jobs do nothing, to see what a job itself costs: `python -m benchmarks.empty_jobs SETTINGS_JSON`."""

import sys

from app.queue.context import JobContext
from app.queue.worker import Worker
from app.settings import Settings

QUEUE = "score"
HANDLERS = {"nothing": "benchmarks.empty_jobs:nothing"}


def nothing(job: JobContext) -> None:
    with job.finish({}):
        pass


if __name__ == "__main__":
    Worker(Settings.model_validate_json(sys.argv[1]), [QUEUE], handlers=HANDLERS).run_until_signal()
