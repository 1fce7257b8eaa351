"""What every route needs: who asks, one transaction, pages, problems, the view of a job, waiting, live progress.

From outside use `dependencies`, `paging`, `problems`, `fields`, `job_view`, `waiting`, `watcher`, `csv` and `auth`;
`bodies` reads large requests, `serving` is what stands around the routes.
"""
