"""What a training has done so far, kept in its job's checkpoint, so that one that was killed goes on from there."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch

import bensemble_core as bc
from app.db.types import new_id
from app.queue.context import JobContext
from app.services import Services
from bensemble_core.types import Snapshot


@dataclass(kw_only=True)
class ProgressKeeper:
    """Trials of a search are in the checkpoint itself, the fit under way is a file that it names."""

    job: JobContext
    services: Services
    prefix: str
    _next_save: float = field(init=False)

    def __post_init__(self) -> None:
        self._wait()

    def trials(self) -> list["bc.Trial"]:
        """Those that have ended."""
        return [
            bc.Trial(settings=each["options"], value=each["value"], seconds=each["seconds"])
            for each in self._checkpoint().get("trials", [])
        ]

    def snapshot(self) -> dict[str, torch.Tensor] | None:
        """Of the fit that has not."""
        key = self._checkpoint().get("snapshot")
        return bc.load_tensors(self.services.objects.get(key)) if key is not None else None

    def report(self, done: int, total: int, message: str, snapshot: Snapshot) -> None:
        self.job.progress(done, total, message)
        if time.monotonic() < self._next_save:
            return
        key = f"{self.prefix}/{self.job.token}-{new_id()}.safetensors"
        self.services.objects.put(key, bc.save_tensors(snapshot()))
        self._save({**self._checkpoint(), "snapshot": key})

    def keep_trial(self, trial: "bc.Trial") -> None:
        checkpoint = self._checkpoint()
        checkpoint.pop("snapshot", None)
        self._save({**checkpoint, "trials": [*checkpoint.get("trials", []), trial_json(trial)]})

    def forget(self) -> None:
        self._save({name: kept for name, kept in self._checkpoint().items() if name not in ("snapshot", "trials")})

    def _checkpoint(self) -> dict[str, Any]:
        return dict(self.job.checkpoint or {})

    def _save(self, checkpoint: dict[str, Any]) -> None:
        """A file is deleted when no checkpoint names it any more."""
        earlier = self._checkpoint().get("snapshot")
        self.job.save_checkpoint(checkpoint)
        if earlier is not None:
            self.services.objects.delete([earlier])
        self._wait()

    def _wait(self) -> None:
        self._next_save = time.monotonic() + self.job.settings.checkpoint_seconds


def trial_json(trial: "bc.Trial") -> dict[str, Any]:
    return {"options": dict(trial.settings), "value": trial.value, "seconds": trial.seconds}
