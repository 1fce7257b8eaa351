"""Everything that can be set from outside, read once from `BENSEMBLE_*` environment variables."""

import json
import logging
from collections.abc import MutableMapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.errors import did_you_mean

PREFIX = "BENSEMBLE_"
OTHERS = ("URL", "API_KEY", "SESSION", "TOKEN", "KERNELS")
"""Variables that are not settings: those of clients, and the library's switch."""
MIB = 1024 * 1024
GIB = 1024 * MIB

logger = logging.getLogger(__name__)


class Settings(BaseSettings):
    """Defaults run the whole service on one machine: SQLite and a folder. Empty URLs are filled from `data_dir`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    data_dir: Path = Field(Path(".bensemble"), description="folder of the embedded database, storage and caches")
    database_url: str = Field("", description="sqlite:///… or postgresql://…; empty: SQLite under data_dir")
    storage_url: str = Field("", description="file:///… or s3://bucket/prefix; empty: a folder under data_dir")
    cache_bytes: int = Field(20 * GIB, ge=0, description="disk cache for objects of a remote storage")

    host: str = Field("127.0.0.1", description="address the API binds to")
    port: int = Field(8000, ge=0, le=65535, description="port the API binds to; 0 picks a free one")
    auth: bool = Field(True, description="ask for API keys; switch off only behind another gate")
    cors_origins: Annotated[list[str], NoDecode] = Field(
        [], description="web pages that may call the API from a browser, comma-separated: https://lab.example,…"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severity that is logged")
    log_format: Literal["auto", "json", "text"] = Field("auto", description="auto: text in a terminal, else JSON")

    device: str = Field("auto", description="auto, cpu, cuda or cuda:N, for training and scoring")
    executor: Literal["inline", "process", "ray"] = Field(
        "inline", description="how a worker scores the shards of one ranking: inline, process or ray"
    )
    processes: int = Field(0, ge=0, description="processes or Ray actors of an executor; 0 is one a processor")
    ray_address: str = Field("", description="of the Ray cluster, for the executor ray: host:port, ray://… or auto")
    split_shards: int = Field(8, ge=0, description="a ranking is split into jobs of so many shards; 0 never splits")
    threads: int = Field(0, ge=0, description="torch threads of a worker; 0 lets torch choose")
    compile: bool = Field(
        False,
        description="score convolutional networks trained from now on through torch.compile; needs a C++ compiler",
    )

    design_threads: int = Field(4, ge=1, description="threads of the API that compute proposals and posteriors")
    design_cache_bytes: int = Field(GIB, ge=0, description="memory for what experiments keep between trials")
    max_design_work: float = Field(3e9, gt=0, description="a proposal of more evaluations than this becomes a job")
    design_seconds: float = Field(2.0, gt=0, description="a proposal that computes for longer than this becomes a job")
    max_simulated_trials: int = Field(
        1_000_000, ge=1, description="cap on truths × trials × policies of one simulation"
    )

    lease_seconds: float = Field(30.0, gt=0, description="a silent worker loses its job after this long")
    poll_seconds: float = Field(0.25, gt=0, description="how often an idle worker looks for a job")
    cancel_grace_seconds: float = Field(
        5.0, ge=0, description="a job that ignores its cancel is killed after this long"
    )
    max_attempts: int = Field(5, ge=1, description="attempts of a job that fails with an unforeseen error")
    max_crashes: int = Field(3, ge=1, description="a job that kills its worker this often is given up")
    backoff_seconds: float = Field(1.0, ge=0, description="delay before the second attempt; doubles each time")
    checkpoint_seconds: float = Field(10.0, gt=0, description="how often a training writes a snapshot")
    keep_replays_days: float = Field(7.0, gt=0, description="how long the answer to an Idempotency-Key is kept")

    max_json_bytes: int = Field(
        128 * MIB, ge=1024, description="largest JSON body, which only requests with rows may have"
    )
    max_document_bytes: int = Field(16 * MIB, ge=1024, description="largest JSON body with labels or a spec")
    max_request_bytes: int = Field(MIB, ge=1024, description="largest JSON body of any other request")
    max_upload_bytes: int = Field(4 * GIB, ge=1024, description="largest data file")
    max_pool_rows: int = Field(50_000_000, ge=1, description="most rows of a pool")
    max_pool_bytes: int = Field(32 * GIB, ge=1024, description="most feature bytes of a pool, as float32")
    shard_bytes: int = Field(64 * MIB, ge=1, description="size of a pool's shards; a ranking is checkpointed by shard")
    max_width: int = Field(1_000_000, ge=1, description="most numbers in a row")
    max_labels_per_request: int = Field(10_000, ge=1, description="most labels in one request")
    max_k: int = Field(10_000, ge=1, description="most items in one ranking")
    max_predictions: int = Field(10_000, ge=1, description="most rows of one prediction request")
    max_parameters: int = Field(50_000_000, ge=1, description="most weights of a model")
    max_training_cost: float = Field(
        1e12,
        gt=0,
        description="cap on members × parameters × epochs of a training, all trials of a search included",
    )
    max_members: int = Field(1000, ge=1, description="most members sampled from a posterior")
    rate_limit: float = Field(0.0, ge=0, description="requests per second and key; 0 is no limit")
    rate_burst: int = Field(50, ge=1, description="requests a key may make at once before the limit bites")
    reserve_seconds: float = Field(600.0, gt=0, description="how long `next` keeps an item for one annotator")

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        origins = json.loads(value) if value.startswith("[") else value.split(",")
        return [origin.strip().rstrip("/") for origin in origins if origin.strip()]

    @model_validator(mode="after")
    def _fill_urls(self) -> Self:
        folder = self.data_dir.absolute()
        if not self.database_url:
            self.database_url = f"sqlite:///{folder / 'bensemble.db'}"
        if not self.storage_url:
            self.storage_url = f"file://{folder / 'storage'}"
        if self.executor == "ray" and not self.ray_address:
            raise ValueError("the executor ray connects to a cluster of yours; set BENSEMBLE_RAY_ADDRESS, e.g. to auto")
        return self

    @property
    def cache_dir(self) -> Path:
        return self.data_dir.absolute() / "cache"


@lru_cache
def get_settings() -> Settings:
    return Settings()


def warn_of_unknown(environment: MutableMapping[str, str]) -> None:
    """A misspelt setting has no effect: say so. It is taken out as well, so that no child process says it again."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name.upper() not in (*known, *(PREFIX + other for other in OTHERS)):
            del environment[name]
            near = did_you_mean(name.upper().removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known])
            logger.warning("%s is not a setting and has no effect%s", name, near.replace("'", f"'{PREFIX}", 1))
