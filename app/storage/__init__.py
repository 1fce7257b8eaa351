"""Objects by key, local or S3; readers of uploaded files; the pool format.

From outside use `objects`, `pools` and `cache` (the names below are theirs), `readers`, `errors`, and `texts` for what
is written beside rows.
"""

from app.storage.cache import DiskCache
from app.storage.errors import AlreadyStored, BadData, BadKey, MissingObject, StorageDown, StorageError
from app.storage.objects import Objects, Stored
from app.storage.pools import Pool, PoolWriter

__all__ = [
    "AlreadyStored",
    "BadData",
    "BadKey",
    "DiskCache",
    "MissingObject",
    "Objects",
    "Pool",
    "PoolWriter",
    "StorageDown",
    "StorageError",
    "Stored",
]
