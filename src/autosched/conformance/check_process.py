"""The process in which checks run: ``python -m autosched.conformance.check_process FD FOLDER``.

``... story HOW FOLDER`` runs a client's whole life. No other module imports this one: Python prints a warning about a
module that is imported before it is run, which would become part of a check's output.
"""

import os
import sys
from pathlib import Path

import msgspec

from autosched.conformance import process_checks
from autosched.conformance.backend_harness import BackendHarness, Subject
from autosched.conformance.check_runner import judge
from autosched.process.parent_death_signal import end_with_parent
from autosched.process.pipe_messages import line


def _serve(out: int, folder: Path) -> None:
    """Run the requested checks one after the other."""
    asked = os.fdopen(os.dup(0), "rb")
    subject = msgspec.json.decode(asked.readline(), type=Subject)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a backend that reads standard input must not get ours
    bench = BackendHarness(subject, folder, alone=True)
    while name := asked.readline().decode().strip():
        os.write(out, line(judge(bench, name)))
    os._exit(0)  # threads may still hang in a stage


def _live(how: str, folder: Path) -> None:
    subject = msgspec.json.decode(sys.stdin.buffer.read(), type=Subject)
    process_checks.story(BackendHarness(subject, folder, alone=True), how == "killed")


if __name__ == "__main__":
    # The parent may be killed while a check hangs; then this process must not wait for the end of its input.
    end_with_parent()
    if sys.argv[1] == "story":
        _live(sys.argv[2], Path(sys.argv[3]))
    else:
        _serve(int(sys.argv[1]), Path(sys.argv[2]))
