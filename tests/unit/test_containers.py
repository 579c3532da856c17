"""The Dockerfile and docker-compose.yml keep our rules. No container engine is asked: there may be none."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from fabric_manager.api.auth import TOKEN
from fabric_manager.app.addresses import CannotStartError, database_url, host_and_port
from fabric_manager.app.topology import read_topology
from fabric_manager.cli import main
from fabric_manager.settings import Settings, variable

ROOT = Path(__file__).parents[2]
COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)
REPLICAS = ("fabric-manager-1", "fabric-manager-2")
WRITABLE = {"/data", "/rack", "/var/lib/postgresql/data"}
SETTINGS = {variable(each.name) for each in fields(Settings)}
# A name and a version of one's own, from wherever the engine gets its images.
IMAGE = re.compile(r"[a-z-]+:[0-9]+(\.[0-9]+)*(-[a-z-]+)*")

every_service = pytest.mark.parametrize("name", sorted(SERVICES))
every_replica = pytest.mark.parametrize("name", REPLICAS)


def instructions() -> list[tuple[str, str]]:
    """(instruction, the rest), lines that end in a backslash joined, comments gone."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for line in joined.splitlines() if line for word, _, rest in [line.partition(" ")]]


def last(instruction: str) -> str:
    return [rest for word, rest in instructions() if word == instruction][-1]


def final_stage() -> list[tuple[str, str]]:
    every = instructions()
    begins = max(number for number, (word, _) in enumerate(every) if word == "FROM")
    return every[begins:]


def test_the_base_is_slim_and_has_a_version() -> None:
    bases = {rest.partition(" AS ")[0] for word, rest in instructions() if word == "FROM"}
    (base,) = bases
    assert IMAGE.fullmatch(base)
    assert "slim" in base
    assert base.startswith("python:3.11")  # what the tests run with


def test_it_does_not_run_as_root_and_says_so_by_number() -> None:
    """An orchestrator that forbids root can only check a number."""
    words = [word for word, _ in final_stage()]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last("USER"))
    assert not {"RUN", "COPY"} & set(words[words.index("USER") :])


def test_everything_installed_is_hashed_and_nothing_is_fetched_otherwise() -> None:
    runs = " && ".join(rest for word, rest in instructions() if word == "RUN")
    for command in runs.split("&&"):
        if re.search(r"pip\S* .*install ", command) and "uninstall" not in command:
            assert "--require-hashes" in command or "--no-index" in command, command
    assert not {"ADD"} & {word for word, _ in instructions()}
    assert not re.search(r"curl|wget|apt|https?://|--index|--trusted-host", runs)


def test_what_only_builds_is_not_left() -> None:
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements.txt").read_text())
    wanted_by = {
        block.partition("==")[0]: set(re.findall(r"^    # +(?:via )?([\w.-]+(?: \(.*\))?)$", block, re.MULTILINE))
        - {"via"}
        for block in blocks
    }
    building = {"fabric-manager (pyproject.toml:build)", "hatchling", "editables"}
    only_to_build = {name for name, wants in wanted_by.items() if wants and wants <= building}
    assert {"hatchling", "editables", "pluggy"} <= only_to_build
    runs = " ".join(rest for word, rest in instructions() if word == "RUN")
    gone = re.findall(r"uninstall --yes ([\w -]+?)(?: &&|$| [A-Z])", runs)
    assert only_to_build <= set(" ".join(gone).split())
    assert {"pip", "setuptools", "wheel"} <= set(" ".join(gone).split())
    assert "--without-pip /opt/fabric-manager" in runs


def test_it_starts_the_service_is_checked_and_has_labels() -> None:
    assert json.loads(last("ENTRYPOINT")) == ["fabric-manager"]
    assert json.loads(last("CMD")) == ["serve"]
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert check[0] in ("python", "fabric-manager")
    assert {"org.opencontainers.image.title", "org.opencontainers.image.licenses"} <= set(
        re.findall(r"([\w.]+)=", last("LABEL"))
    )


def test_the_image_knows_the_settings_and_holds_no_secret() -> None:
    variables = set(re.findall(r"(FABRIC_MANAGER_\w+)=", last("ENV")))
    assert variables <= SETTINGS
    assert not [name for name in variables if "TOKEN" in name or "PASSWORD" in name or "URL" in name]


def test_whatever_is_copied_is_there_and_sent_to_the_engine() -> None:
    sent = (ROOT / ".dockerignore").read_text().split()
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in sent
    assert "deploy" not in " ".join(sent)  # secrets


@every_service
def test_a_container_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "/tmp" in [mount.partition(":")[0] for mount in service["tmpfs"]]
    assert service.get("user", "image") not in ("root", "0", 0)
    assert name in OURS or "user" in service
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & set(service)
    assert {path for _, path, access in mounts(service) if access != "ro"} <= WRITABLE


def mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for volume in service.get("volumes", ()):
        source, target, *access = volume.split(":")
        yield source, target, access[0] if access else "rw"


@every_service
def test_an_image_has_a_name_and_a_version(name: str) -> None:
    assert IMAGE.fullmatch(SERVICES[name]["image"])


@every_service
def test_everything_named_is_declared(name: str) -> None:
    service = SERVICES[name]
    assert {source for source, _, _ in mounts(service)} <= set(COMPOSE["volumes"])
    assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
    assert {config["source"] for config in service.get("configs", ())} <= set(COMPOSE["configs"])
    for other, wanted in service.get("depends_on", {}).items():
        check = SERVICES[other]["healthcheck"]
        assert wanted["condition"] == ("service_completed_successfully" if "disable" in check else "service_healthy")
    for config in COMPOSE["configs"].values():
        assert (ROOT / config["file"]).is_file()


@every_service
def test_secrets_come_from_files_and_variables_are_settings(name: str) -> None:
    service = SERVICES[name]
    for variable_name, text in service.get("environment", {}).items():
        assert isinstance(text, str)
        assert not re.search(r"//[^/@]*:[^/@]*@", text), "a password in a URL"
        if "PASSWORD" in variable_name or "TOKEN" in variable_name:
            assert variable_name.endswith("_FILE")
            assert text.removeprefix("/run/secrets/") in service["secrets"]
        if name in OURS:
            assert variable_name in SETTINGS


@every_service
def test_it_is_known_whether_it_works(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert name == "migrate" or check["test"][0] == "CMD"
    assert name == "migrate" or SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", OURS)
def test_the_command_is_one_of_ours(name: str) -> None:
    command, *arguments = SERVICES[name]["command"]
    known = {option for param in main_command(command).params for option in param.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= known


def main_command(name: str) -> click.Command:
    assert isinstance(main, click.Group)
    found = main.get_command(click.Context(main), name)
    assert found is not None, name
    return found


def test_the_replicas_differ_in_port_and_data_only() -> None:
    own = ("ports", "volumes")
    shared = [{key: value for key, value in SERVICES[name].items() if key not in own} for name in REPLICAS]
    assert shared[0] == shared[1]
    for key in own:
        assert SERVICES[REPLICAS[0]][key] != SERVICES[REPLICAS[1]][key]
    data = [source for name in REPLICAS for source, target, _ in mounts(SERVICES[name]) if target == "/data"]
    assert len(set(data)) == 2


@every_replica
def test_a_replica_is_reached_from_this_machine_only(name: str) -> None:
    for port in SERVICES[name]["ports"]:
        assert port.startswith("127.0.0.1:")
    assert "ports" not in SERVICES["postgres"]


@every_replica
def test_a_replica_finds_the_rack_where_the_topology_says(name: str) -> None:
    topology = read_topology(ROOT / COMPOSE["configs"]["topology"]["file"])
    assert not topology.simulated  # it would start a rack of its own
    (fabric,) = topology.inventory["fabrics"]
    (rack,) = [mount for mount in mounts(SERVICES[name]) if mount[0] == "rack"]
    command = SERVICES["rack"]["command"]
    state = command[command.index("--state") + 1]
    assert rack == ("rack", state, "ro")
    assert fabric["endpoint"] == f"simulator:{state}"
    assert command[command.index("--announce") + 1] == "rack"


def test_the_topology_is_the_examples() -> None:
    ours = read_topology(ROOT / "deploy" / "topology.yaml").inventory
    example = read_topology(ROOT / "examples" / "rack.yaml").inventory
    without_endpoint = [{k: v for k, v in fabric.items() if k != "endpoint"} for fabric in ours["fabrics"]]
    assert {**ours, "fabrics": without_endpoint} == example


def test_the_secrets_are_made_once_and_are_good(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy" / "make-secrets", tmp_path)
    subprocess.run([tmp_path / "make-secrets"], check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert set(made) == set(COMPOSE["secrets"])
    assert {Path(secret["file"]).parent for secret in COMPOSE["secrets"].values()} == {Path("deploy/secrets")}
    assert TOKEN.fullmatch(made["bootstrap_token"])
    assert len(made["postgres_password"]) == 48
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    subprocess.run([tmp_path / "make-secrets"], check=True)
    assert made == {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert os.access(ROOT / "deploy" / "make-secrets", os.X_OK)


def test_the_password_of_a_file_takes_its_place_in_the_url(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p@ss:/word\n")
    given = "postgresql://me@db:5432/fabric?application_name=x"
    whole = database_url(given, tmp_path / "password")
    assert whole == "postgresql://me:p%40ss%3A%2Fword@db:5432/fabric?application_name=x"
    assert database_url("postgresql://me:old@db/fabric", tmp_path / "password").startswith("postgresql://me:p%40ss")
    assert database_url(given, None) == given
    with pytest.raises(CannotStartError, match="names the user"):
        database_url("postgresql://db/fabric", tmp_path / "password")
    with pytest.raises(CannotStartError, match="cannot be read"):
        database_url(given, tmp_path / "absent")


def test_an_address_of_metrics_is_host_and_port() -> None:
    assert host_and_port("127.0.0.1:9464") == ("127.0.0.1", 9464)
    assert host_and_port("[::1]:0") == ("::1", 0)
    for wrong in ("9464", ":9464", "host:", "host:99999", "host:x"):
        with pytest.raises(CannotStartError, match="host:port"):
            host_and_port(wrong)
