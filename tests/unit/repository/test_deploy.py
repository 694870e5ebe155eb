"""The files in deploy/ name commands, settings and files that exist."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from maxq.cli.app import group
from maxq.config import BrokerSettings, NamesrvSettings
from maxq.config.properties import parse_properties

DEPLOY = Path(__file__).parents[3] / "deploy"
CONFS = sorted(DEPLOY.rglob("*.conf"))
YAMLS = sorted(DEPLOY.rglob("*.yaml"))


def _parses(words: list[str]) -> None:
    """The words are a command line of `maxq`."""
    command: Any = group.get_command(typer.Context(group), words[0])
    command.make_parser(typer.Context(command)).parse_args(args=words[1:])


@pytest.mark.parametrize("conf", CONFS, ids=[f"{conf.parent.name}/{conf.name}" for conf in CONFS])
def test_settings_are_known_and_in_their_bounds(conf: Path) -> None:
    kind = NamesrvSettings if conf.name == "namesrv.conf" else BrokerSettings
    _, warnings = kind.from_properties(parse_properties(conf.read_text()), source=str(conf))
    assert list(warnings) == []


@pytest.mark.parametrize("unit", sorted(DEPLOY.rglob("*.service")), ids=lambda unit: unit.name)
def test_units_start_commands_of_ours(unit: Path) -> None:
    started = re.findall(r"^ExecStart=/opt/maxq/bin/maxq (.*)$", unit.read_text(), re.MULTILINE)
    assert len(started) == 1
    _parses(started[0].split())
    conf = started[0].rpartition("/")[2]
    assert (unit.parent / conf).exists(), "an example of its settings lies beside the unit"


@pytest.mark.parametrize("unit", sorted(DEPLOY.rglob("*.service")), ids=lambda unit: unit.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed here")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/maxq/bin/maxq", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True)
    assert unit.name not in done.stderr, done.stderr


@pytest.mark.parametrize("file", YAMLS, ids=[f"{file.parent.name}/{file.name}" for file in YAMLS])
def test_files_are_yaml(file: Path) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(file.read_text()))


def test_compose_starts_commands_of_ours_with_files_that_are_there() -> None:
    folder = DEPLOY / "compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    ours = {name: service for name, service in services.items() if service["image"] == "maxq"}
    assert set(ours) == {"namesrv", "master", "slave"}
    for service in ours.values():
        _parses(service["command"])
        assert (folder / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (folder / source).exists(), source


def test_kubernetes_starts_as_many_members_as_the_settings_name() -> None:
    folder = DEPLOY / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert all((folder / name).exists() for name in kustomization["resources"])
    conf = parse_properties((folder / "broker.conf").read_text())
    documents = [*yaml.safe_load_all((folder / "broker.yaml").read_text())]
    members = next(document for document in documents if document["kind"] == "StatefulSet")
    peers = conf["dLegerPeers"].split(";")
    assert members["spec"]["replicas"] == len(peers)
    name, service = members["metadata"]["name"], members["spec"]["serviceName"]
    assert peers == [f"n{i}-{name}-{i}.{service}:40911" for i in range(len(peers))]
