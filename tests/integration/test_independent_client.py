"""A client written from docs/protocol.md alone runs a job beside others, in a real daemon."""

import ast
import subprocess
import sys
from pathlib import Path

from deadlines import DEADLINE_S
from integration.lab import lab

CLIENT = Path(__file__).parents[1] / "independent_client.py"


def test_the_independent_client_imports_nothing_of_autosched() -> None:
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(ast.parse(CLIENT.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "msgpack"}


def test_the_independent_client_runs_a_job_to_its_end(tmp_path: Path) -> None:
    with lab(tmp_path) as there:
        other = there.submit(trials=16, tasks=2)
        command = [sys.executable, "-I", str(CLIENT), f"{tmp_path}/api.sock"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        assert ended.returncode == 0, ended.stderr
        view = there.wait(int(ended.stdout))
        assert (view.state, view.trials, view.trials_total, view.backend) == ("done", 4, 4, "independent")
        assert view.estimate_s == 1e-3
        assert [record.candidate for record in there.records(view.job)] == [b"1", b"3", b"6", b"12"]
        assert there.wait(other).state == "done"
