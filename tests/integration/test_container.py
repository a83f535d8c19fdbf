"""Files of the container: they name existing files and agree with each other, and its command starts a daemon that
serves metrics."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from autosched import config
from autosched.cli.command_table import COMMANDS
from autosched.wire.whereabouts import WHEREABOUTS, Whereabouts
from deadlines import DEADLINE_S, until

ROOT = Path(__file__).parents[2]
HERE = ROOT / "etc/container"


def read(name: str) -> Any:
    return yaml.safe_load((HERE / name).read_text())


def instructions() -> list[tuple[str, str]]:
    """Returns the Containerfile's instructions, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (HERE / "Containerfile").read_text())
    return [(line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line and line[0] != "#"]


def test_what_the_image_copies_exists_and_is_all_that_the_package_needs() -> None:
    copied = [path for kind, words in instructions() if kind == "COPY" for path in words.split()[:-1]]
    assert not [path for path in copied if not (ROOT / path).exists()]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [
        *build["packages"],
        *build["force-include"],
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "etc/locks/runtime.txt",
    ]
    assert not [path for path in needed if not any(path == c or path.startswith(f"{c}/") for c in copied)]


def test_commands_of_the_image_exist() -> None:
    text = " ".join(words for _, words in instructions()) + (HERE / "start.sh").read_text()
    named = set(re.findall(r'\bautosched"?,? "?([a-z]+)\b(?= |")', text)) & {"serve", "key", "status"}
    assert named == {"serve", "key", "status"} <= COMMANDS.keys()
    extras = re.findall(r"/src\[([a-z,]+)\]", text)[0].split(",")
    assert (
        set(extras) <= tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    )
    subprocess.run(["sh", "-n", str(HERE / "start.sh")], check=True, timeout=DEADLINE_S)


def test_ports_and_folders_are_those_of_the_settings() -> None:
    settings = config.load(HERE / "autosched.toml")
    ports = {settings.listen()[1], (settings.http_listen() or ("", 0))[1]}
    exposed = next(words for kind, words in instructions() if kind == "EXPOSE")
    assert {int(port) for port in exposed.split()} == ports
    daemon = read("compose.yaml")["services"]["autosched"]
    assert {int(words.rpartition(":")[2]) for words in daemon["ports"]} == ports
    volumes = [words.split(":")[1] for words in daemon["volumes"]]
    assert volumes == [str(settings.state_dir), str(Path(settings.daemon.tls_certificate).parent)]
    (target,) = read("prometheus.yml")["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"autosched:{(settings.http_listen() or ('', 0))[1]}"


def test_the_compose_file_mounts_existing_files_where_programs_read_them() -> None:
    compose = read("compose.yaml")
    mounts: dict[str, dict[str, str]] = {}
    for name, service in compose["services"].items():
        for words in service["volumes"]:
            source, target = words.split(":")[:2]
            mounts.setdefault(name, {})[target] = source
            assert source in compose["volumes"] or (HERE / source).exists(), source
        assert set(service.get("depends_on", ())) <= compose["services"].keys()
    build = compose["services"]["autosched"]["build"]
    assert (HERE / build["context"] / build["dockerfile"]).samefile(HERE / "Containerfile")

    prometheus, scraped = read("prometheus.yml"), read("prometheus.yml")["scrape_configs"][0]
    assert all(path in mounts["prometheus"] for path in prometheus["rule_files"])
    shared = [scraped["tls_config"]["ca_file"], scraped["authorization"]["credentials_file"]]
    assert [mounts["prometheus"][str(Path(path).parent)] for path in shared] == ["shown", "shown"]
    assert all(Path(path).name in (HERE / "start.sh").read_text() for path in shared)
    assert f'job="{scraped["job_name"]}"' in (ROOT / "etc/prometheus/alerts.yml").read_text()

    boards = read("grafana/boards.yaml")["providers"][0]["options"]["path"]
    home = compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads((HERE / mounts["grafana"][boards] / Path(home).name).read_text())["panels"]
    assert read("grafana/source.yaml")["datasources"][0]["url"] == "http://prometheus:9090"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl: apt-get install openssl")
def test_the_command_of_the_image_starts_a_daemon_with_metrics(tmp_path: Path) -> None:
    state = tmp_path / "state"
    text = (HERE / "autosched.toml").read_text().replace("/var/lib/autosched", str(state))
    settings = tmp_path / "autosched.toml"
    settings.write_text(re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", text))
    with (tmp_path / "log").open("wb") as log:
        here = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        process = subprocess.Popen(["sh", str(HERE / "start.sh"), str(settings), str(state)], stderr=log, env=here)
    try:
        page = page_of(process, state)
        key = (state / "shown/viewer.key").read_text().strip()
        asked = urllib.request.Request(f"{page}metrics", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
            assert b"autosched_info" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"{page}metrics", timeout=DEADLINE_S)
        refused.value.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()


def services(name: str) -> dict[str, Any]:
    return dict(read(name)["services"])


def test_the_lab_is_a_daemon_and_two_agents_with_cores_of_their_own() -> None:
    lab, volumes = services("lab.yaml"), read("lab.yaml")["volumes"]
    assert set(lab) == {"autosched", "lab1", "lab2"}
    assert len({service["cpuset"] for service in lab.values()}) == 3
    for service in lab.values():
        sources = [words.split(":")[0] for words in service["volumes"]]
        assert all(source in volumes or (HERE / source).exists() for source in sources)
        assert service["image"] == "autosched"
    copied = {words.split()[1]: words.split()[0] for kind, words in instructions() if kind == "COPY"}
    for name in ("lab1", "lab2"):
        shell, script, called = lab[name]["command"]
        assert (shell, called) == ("sh", name)
        assert (ROOT / copied[script]).exists()
        port = lab[name]["environment"]["AUTOSCHED_HOST"].rpartition(":")[2]
        assert int(port) == config.load(HERE / "lab.toml").listen()[1]
    key = Path(lab["autosched"]["environment"]["AGENT_KEY"])
    assert f"{key.parent}:ro" in lab["lab1"]["volumes"][0]
    assert f"key=${{2:-{key}}}" in (HERE / "start-agent.sh").read_text()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl: apt-get install openssl")
def test_the_commands_of_the_lab_lend_a_host(tmp_path: Path) -> None:
    state, cores = tmp_path / "state", sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("a daemon and an agent on one machine need two cores")
    text = (HERE / "lab.toml").read_text().replace("/var/lib/autosched", str(state))
    settings = tmp_path / "autosched.toml"
    settings.write_text(re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", text))
    key = tmp_path / "agent.key"
    here = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "AGENT_KEY": str(key)}

    def start(core: int, *words: str) -> "subprocess.Popen[bytes]":
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(["taskset", "-c", str(core), "sh", *words], stderr=log, env=here)

    daemon = start(cores[0], str(HERE / "start.sh"), str(settings), str(state))
    running = [daemon]
    try:
        until(lambda: (state / WHEREABOUTS).exists() and daemon.poll() is None, "the daemon serves")
        there = msgspec.json.decode((state / WHEREABOUTS).read_bytes(), type=Whereabouts)
        here["AUTOSCHED_HOST"] = next(one for one in there.addresses if one.startswith("tls:"))
        agent = start(cores[1], str(HERE / "start-agent.sh"), "lab1", str(key), str(tmp_path / "agent"))
        running.append(agent)
        until(lambda: "host lab1 is lent" in (tmp_path / "log").read_text(), "the agent lends its core")
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(DEADLINE_S) == 0, (tmp_path / "log").read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()


def page_of(process: "subprocess.Popen[bytes]", state: Path) -> str:
    """Returns the address of the daemon's page, once it is there."""
    until = time.monotonic() + DEADLINE_S
    while not (state / WHEREABOUTS).exists():
        assert process.poll() is None
        assert time.monotonic() < until
        threading.Event().wait(0.02)
    return msgspec.json.decode((state / WHEREABOUTS).read_bytes(), type=Whereabouts).page
