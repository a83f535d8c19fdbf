"""`make chaos` in short: daemons killed under ten clients, and nothing is lost, repeated or counted twice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 30
COMMAND = (sys.executable, "-m", "chaos", "kills", "--kills", str(KILLS), "--clients", "10", "--brief", "--seed", "1")
DEADLINE_S = 900.0


@pytest.mark.timeout(DEADLINE_S + 10.0)
def test_daemons_die_and_nothing_is_lost() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=environment, timeout=DEADLINE_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    told = json.loads(done.stdout)["kills"]
    assert told["kills"] == KILLS
    assert told["violations"] == []
    assert told["dead_client_noticed_s"] is not None  # a client was killed as well
    assert told["steps_acknowledged"] > KILLS
