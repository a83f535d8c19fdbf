"""A short `make chaos`: daemons killed under ten clients; nothing is lost, repeated or counted twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import postgres

DEADLINE_S = 900.0


def chaos(part: str, kills: int) -> dict[str, Any]:
    """Runs one part with ten clients; returns its result."""
    words = (part, "--kills", str(kills), "--clients", "10", "--brief", "--seed", "1")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = (sys.executable, "-m", "chaos", *words)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=DEADLINE_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    told: dict[str, Any] = json.loads(done.stdout)[part]
    assert told["kills"] == kills
    assert told["violations"] == []
    return told


@pytest.mark.timeout(DEADLINE_S + 10.0)
def test_daemons_die_and_nothing_is_lost() -> None:
    told = chaos("kills", 30)
    assert told["dead_client_noticed_s"] is not None  # a client was killed as well
    assert told["steps_acknowledged"] > 30


@pytest.mark.timeout(DEADLINE_S + 10.0)
def test_agents_cables_and_clocks_fail_and_nothing_is_lost() -> None:
    assert chaos("hosts", 10)["hosts_used"] == 3


@pytest.mark.timeout(DEADLINE_S + 10.0)
@pytest.mark.skipif(postgres.programs() is None, reason="needs PostgreSQL; on Debian: apt-get install postgresql")
def test_daemon_and_record_store_die_and_the_store_has_each_record_once() -> None:
    told = chaos("records", 6)
    assert told["daemon_kills"] == told["server_kills"] == 4
    assert told["stored"] == told["records"] > 0
