"""What a process of the service holds open: the database, the object storage, pools and experiments already opened."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from app.bounded_cache import BoundedCache
from app.compute import Compute
from app.db.engine import Database
from app.db.tables import PoolData
from app.settings import Settings
from app.storage.cache import DiskCache
from app.storage.objects import Objects
from app.storage.pools import Pool

if TYPE_CHECKING:
    from app.queue.context import JobContext

OPEN_POOLS = 64
PROJECTED_ROWS = 500_000  # of all maps that are kept, 8 MB


def open_objects(settings: Settings) -> Objects:
    return Objects(settings.storage_url, cache=DiskCache(folder=settings.cache_dir, max_bytes=settings.cache_bytes))


@dataclass(frozen=True, kw_only=True)
class Services:
    settings: Settings
    database: Database
    objects: Objects

    @classmethod
    def open(cls, settings: Settings) -> "Services":
        return cls(settings=settings, database=Database.connect(settings.database_url), objects=open_objects(settings))

    @cached_property
    def compute(self) -> Compute:
        return Compute(threads=self.settings.design_threads, cache_bytes=self.settings.design_cache_bytes)

    @cached_property
    def projections(self) -> BoundedCache[Any]:
        """Where the rows of pools lie on their maps, by the pool's prefix; they never change either."""
        return BoundedCache(PROJECTED_ROWS)

    def pool(self, data: PoolData) -> Pool:
        return self.pool_at(data.prefix)

    @cached_property
    def pool_at(self) -> Callable[[str], Pool]:
        """The memory-mapped files of the pool at a prefix; they never change, so an opened one is kept."""
        return lru_cache(maxsize=OPEN_POOLS)(partial(Pool.open, self.objects))


_opened: dict[tuple[str, str], Services] = {}


def job_services(job: "JobContext") -> Services:
    """For a job's handler: kept between the jobs of one child process, so that what was opened stays open."""
    where = (job.settings.database_url, job.settings.storage_url)
    if where not in _opened:
        _opened[where] = Services(settings=job.settings, database=job.database, objects=open_objects(job.settings))
    return _opened[where]
