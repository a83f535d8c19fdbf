"""The files for Kubernetes: its own schema checks them where it is installed."""

from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from autosched.cli.agent import agent
from autosched.config import load, resources

FOLDER = Path(__file__).parents[2] / "etc/kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def kinds() -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for path in FILES for document in documents(path)}


def container(kind: str) -> dict[str, Any]:
    (found,) = kinds()[kind]["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_schema_of_kubernetes_takes_them(path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for document in documents(path):
        kubernetes_validate.validate(document, "1.37", strict=True)


def test_all_kinds_are_there_and_select_their_own_pods() -> None:
    assert set(kinds()) == {"ConfigMap", "Service", "StatefulSet", "Deployment"}
    for kind in ("StatefulSet", "Deployment"):
        spec = kinds()[kind]["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        mounts = {mount["name"] for mount in container(kind)["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
        assert mounts == claims | {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert kinds()["Service"]["spec"]["selector"] == kinds()["StatefulSet"]["spec"]["selector"]["matchLabels"]


def test_the_daemon_takes_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "autosched.toml"
    file.write_text(kinds()["ConfigMap"]["data"]["autosched.toml"])
    settings = load(file)
    assert settings.daemon.listen.endswith(":7433")
    (lanes, none) = resources(settings, [0, 1, 2]).pools
    assert (len(lanes.units), none.name) == (1, "device:none"), "no job is placed here, and little is built"


def test_the_agent_takes_its_options_and_whole_cores_of_its_own() -> None:
    words = [*container("Deployment")["command"], *container("Deployment")["args"]]
    assert words[:2] == ["autosched", "agent"]
    parsed = click.Context(agent)
    assert not agent.parse_args(parsed, words[2:])
    assert parsed.params["address"] == "tls://autosched:7433"
    given = container("Deployment")["resources"]
    assert given["requests"] == given["limits"]
    assert given["limits"]["cpu"].isdecimal()
