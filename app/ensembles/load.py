"""Trained ensembles from storage; the last few stay loaded in a worker's child."""

import logging
from collections import OrderedDict

import bensemble_core as bc
from app.storage.objects import Objects

logger = logging.getLogger(__name__)
KEPT = 4
_loaded: "OrderedDict[tuple[str, str], bc.Ensemble]" = OrderedDict()


def load_ensemble(objects: Objects, file_key: str, device: str) -> bc.Ensemble:
    where = (file_key, device)
    if where not in _loaded:
        loaded = bc.load(objects.local_path(file_key))
        if not isinstance(loaded, bc.Ensemble):
            raise TypeError(f"{file_key} holds a {type(loaded).__name__}, not an ensemble")
        moved = loaded.to(device)
        if moved.plan.compiled:
            logger.info("compiled the network for this process", extra={"seconds": moved.warm_up()})
        _loaded[where] = moved
    _loaded.move_to_end(where)
    while len(_loaded) > KEPT:
        _loaded.popitem(last=False)
    return _loaded[where]
