"""The compose file and the image, as far as they can be checked without an engine.

The official schema of compose files is not kept here; SCHEMA says of the part that we use what that one says.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from app.cli import _parser
from app.settings import Settings

ROOT = Path(__file__).parents[2]
DURATION = r"^([0-9]+(us|ms|s|m|h))+$"
WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "services", "volumes", "configs"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "volumes": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
        "configs": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["content"],
                "additionalProperties": False,
                "properties": {"content": {"type": "string"}},
            },
        },
        "services": {"type": "object", "additionalProperties": {"$ref": "#/$defs/service"}},
    },
    "$defs": {
        "service": {
            "type": "object",
            "required": ["image", "restart"],
            "additionalProperties": False,
            "properties": {
                "image": {"type": "string", "pattern": r"^[a-z0-9/_-]+:[\w.-]+$"},
                "build": {
                    "type": "object",
                    "required": ["context", "dockerfile"],
                    "additionalProperties": False,
                    "properties": {
                        "context": {"type": "string"},
                        "dockerfile": {"type": "string"},
                        "args": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                },
                "command": WORDS,
                "entrypoint": WORDS,
                "profiles": WORDS,
                "init": {"type": "boolean"},
                "restart": {"type": "string", "pattern": r"^(no|always|unless-stopped|on-failure(:[0-9]+)?)$"},
                "stop_grace_period": {"type": "string", "pattern": DURATION},
                "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                "ports": {"type": "array", "items": {"type": "string", "pattern": r"^(\$\{\w+:-\d+\}|\d+):\d+$"}},
                "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[\w-]+:/\S+$"}},
                "configs": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["source", "target"],
                        "additionalProperties": False,
                        "properties": {"source": {"type": "string"}, "target": {"type": "string", "pattern": "^/"}},
                    },
                },
                "depends_on": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "required": ["condition"],
                        "additionalProperties": False,
                        "properties": {
                            "condition": {
                                "enum": ["service_started", "service_healthy", "service_completed_successfully"]
                            }
                        },
                    },
                },
                "healthcheck": {
                    "oneOf": [
                        {
                            "type": "object",
                            "required": ["disable"],
                            "additionalProperties": False,
                            "properties": {"disable": {"const": True}},
                        },
                        {
                            "type": "object",
                            "required": ["test", "interval", "timeout", "retries"],
                            "additionalProperties": False,
                            "properties": {
                                "test": {**WORDS, "prefixItems": [{"enum": ["CMD", "CMD-SHELL"]}]},
                                "interval": {"type": "string", "pattern": DURATION},
                                "timeout": {"type": "string", "pattern": DURATION},
                                "start_period": {"type": "string", "pattern": DURATION},
                                "retries": {"type": "integer", "minimum": 1},
                            },
                        },
                    ]
                },
                "deploy": {
                    "type": "object",
                    "required": ["resources"],
                    "additionalProperties": False,
                    "properties": {
                        "resources": {
                            "type": "object",
                            "required": ["reservations"],
                            "additionalProperties": False,
                            "properties": {
                                "reservations": {
                                    "type": "object",
                                    "required": ["devices"],
                                    "additionalProperties": False,
                                    "properties": {
                                        "devices": {
                                            "type": "array",
                                            "items": {
                                                "type": "object",
                                                "required": ["capabilities"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "capabilities": WORDS,
                                                    "driver": {"type": "string"},
                                                    "count": {"type": ["integer", "string"]},
                                                },
                                            },
                                        }
                                    },
                                }
                            },
                        }
                    },
                },
            },
        }
    },
}


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "docker-compose.yml").read_text()


@pytest.fixture(scope="module")
def compose(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@pytest.fixture(scope="module")
def ours(compose: dict[str, Any]) -> dict[str, Any]:
    return {name: service for name, service in compose["services"].items() if "build" in service}


def subcommands() -> dict[str, argparse.ArgumentParser]:
    (choices,) = (a.choices for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(choices)


def dockerfile() -> list[tuple[str, str]]:
    """(instruction, the rest) with continued lines joined and comments left out."""
    lines = (ROOT / "docker/Dockerfile").read_text().splitlines()
    joined = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ")
    words = [line.split(None, 1) for line in joined.splitlines() if line.strip()]
    return [(instruction, rest) for instruction, rest in words]


def test_the_compose_file_has_the_form_that_compose_reads(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(compose, SCHEMA, cls=jsonschema.Draft202012Validator)


def test_everything_that_is_named_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(compose["volumes"]), name
        assert {config["source"] for config in service.get("configs", [])} <= set(compose["configs"]), name
    for name in ("s3",):
        identities = json.loads(re.sub(r"\$\{[^}]*\}", "secret", compose["configs"][name]["content"]))["identities"]
        assert identities[0]["credentials"] == [{"accessKey": "secret", "secretKey": "secret"}]


def test_services_start_in_an_order_in_which_each_finds_what_it_needs(compose: dict[str, Any]) -> None:
    services = compose["services"]
    needs = {
        name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        for name, service in services.items()
    }
    assert needs["migrate"]["postgres"] == "service_healthy"
    assert needs["bucket"]["storage"] == "service_healthy"
    assert needs["api"]["migrate"] == needs["api"]["bucket"] == "service_completed_successfully"
    assert needs["worker"]["api"] == needs["worker-gpu"]["api"] == "service_healthy"
    for name, wanted in needs.items():
        for other, condition in wanted.items():
            checked = "test" in services[other].get("healthcheck", {}) or (
                "build" in services[other] and "healthcheck" not in services[other]  # the image has one
            )
            assert condition != "service_healthy" or checked, f"{name} waits for the health of {other}, which has none"
            if condition == "service_completed_successfully":
                assert services[other]["restart"].startswith("on-failure"), f"{other} would never be complete"
    order: list[str] = []
    while len(order) < len(needs):
        ready = [name for name in needs if name not in order and set(needs[name]) <= set(order)]
        assert ready, f"a circle among {set(needs) - set(order)}"
        order += ready


def test_what_runs_by_default_needs_no_gpu(compose: dict[str, Any]) -> None:
    with_gpu = {name for name, service in compose["services"].items() if "deploy" in service}
    assert with_gpu == {"worker-gpu"}
    assert compose["services"]["worker-gpu"]["profiles"] == ["gpu"]
    assert [name for name, service in compose["services"].items() if "profiles" in service] == ["worker-gpu"]
    devices = compose["services"]["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["capabilities"] == ["gpu"]


def test_one_worker_is_kept_for_proposals(compose: dict[str, Any]) -> None:
    commands = [service.get("command", []) for service in compose["services"].values()]
    workers = [_parser().parse_args(command) for command in commands if command[:1] == ["worker"]]
    assert "design" in [worker.queues for worker in workers]
    assert any("simulate" in worker.queues for worker in workers)


def test_workers_can_be_scaled(compose: dict[str, Any]) -> None:
    assert "ports" not in compose["services"]["worker"]  # two would fight for one
    assert all("container_name" not in service for service in compose["services"].values())


def test_every_command_is_one_of_ours(ours: dict[str, Any]) -> None:
    known = subcommands()
    for service in ours.values():
        command, *options = service["command"]
        known[command].parse_args(options)  # exits if it does not know one
    default = json.loads(next(rest for instruction, rest in dockerfile() if instruction == "CMD"))
    assert default[0] in known
    assert ("ENTRYPOINT", '["bensemble"]') in dockerfile()


def test_every_setting_that_is_given_exists_and_is_valid(ours: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    image = {
        name: value
        for instruction, rest in dockerfile()
        if instruction == "ENV"
        for name, value in (pair.split("=", 1) for pair in rest.split())
    }
    for service in ours.values():
        given = {**image, **service["environment"]}
        names = {name.removeprefix("BENSEMBLE_").lower() for name in given if name.startswith("BENSEMBLE_")}
        assert names <= set(Settings.model_fields)
        for name, value in given.items():
            if name.startswith("BENSEMBLE_"):
                monkeypatch.setenv(name, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", re.sub(r"\$\{\w+:\?[^}]*\}", "x", value)))
        settings = Settings()
        assert settings.database_url == "postgresql://bensemble:x@postgres:5432/bensemble"
        assert settings.storage_url == "s3://bensemble"
        assert settings.host == "0.0.0.0"


def test_secrets_have_no_default_and_are_explained(text: str) -> None:
    used = dict(re.findall(r"\$\{(\w+)(:[?-])", text))
    required = {name for name, how in used.items() if how == ":?"}
    assert required == {"POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY"}
    for name, how in re.findall(r"\$\{(\w+)(:[?-])?", text):
        assert how, f"{name} would silently be empty"
    example = (ROOT / ".env.example").read_text()
    explained = set(re.findall(r"^#?([A-Z0-9_]+)=", example, re.MULTILINE))
    assert explained == set(used)
    assert all(re.search(rf"^{name}=$", example, re.MULTILINE) for name in required)


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in ignored
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = [rest.split()[:-1] for instruction, rest in dockerfile() if instruction == "COPY" and "--from" not in rest]
    sources = {source for line in copied for source in line}
    assert {source.partition("/")[0] for source in sources} == kept
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_runs_as_nobody_in_particular_and_says_when_it_is_ready() -> None:
    last_stage = dockerfile()[max(i for i, (name, _) in enumerate(dockerfile()) if name == "FROM") :]
    names = [name for name, _ in last_stage]
    assert dict(last_stage)["USER"] == "bensemble"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "/readyz" in dict(last_stage)["HEALTHCHECK"]


def test_the_images_health_check_is_a_program_that_fails_where_nothing_answers() -> None:
    check = next(rest for instruction, rest in dockerfile() if instruction == "HEALTHCHECK")
    command = json.loads(check[check.index("[") :])
    env = {**os.environ, "BENSEMBLE_PORT": "1"}
    assert command[0] == "python"
    ran = subprocess.run([sys.executable, *command[1:]], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "refused" in ran.stderr


def test_torch_is_pinned_in_the_way_that_the_image_reads() -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert "torch==2.13.0" in pins
    assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", pin) for pin in pins)


def test_compose_itself_takes_the_file() -> None:
    if not shutil.which("docker") or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        pytest.skip("there is no docker compose here")
    secrets = dict.fromkeys(("POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY"), "x")
    command = ["docker", "compose", "--profile", "gpu", "config", "--quiet"]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **secrets}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
