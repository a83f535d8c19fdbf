"""Closed streams and signals of a command show no traceback."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from autosched.cli import command_table
from deadlines import DEADLINE_S

PYTHON = quote(sys.executable)
COMMAND = f"{PYTHON} -m autosched"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("streams", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_handled_like_a_broken_pipe(streams: str) -> None:
    answer = shell(f"{COMMAND} -q completion bash {streams}")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_nothing_is_opened_in_the_place_of_a_closed_output(tmp_path: Path) -> None:
    program = (
        "import autosched.cli as c; c._stand_in_for_closed(); import os; print(os.open('/', 0), file=open('n', 'w'))"
    )
    assert shell(f'cd {tmp_path} && {PYTHON} -c "{program}" <&- >&- 2>&-').returncode == 0
    assert int((tmp_path / "n").read_text()) > 2


@pytest.mark.parametrize("words", ["-q completion bash", "--version"])
def test_results_that_cannot_be_written_are_an_error_and_no_bug(words: str) -> None:
    answer = shell(f"{COMMAND} {words} > /dev/full")
    assert answer.returncode == 1
    assert answer.stderr == (
        "autosched: the results cannot be written (No space left on device);"
        " free some space there, or choose another place\n"
    )


def test_a_closed_pager_causes_no_message() -> None:
    answer = shell(f"set -o pipefail; {COMMAND} -q completion bash | head -c 1 > /dev/null")
    assert (answer.returncode, answer.stderr) == (0, "")


def test_characters_that_a_terminal_cannot_show_become_question_marks() -> None:
    program = "import autosched.cli as c; c._stand_in_for_closed(); print('a\\u2026b')"
    assert shell(f'{PYTHON} -c "{program}"', PYTHONIOENCODING="latin-1").stdout == "a?b\n"


def test_an_interrupt_while_commands_are_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "autosched_interrupted.py").write_text(
        "import sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Finder(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'autosched.cli.command_table':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from autosched.cli import main\n"
        "main()\n"
    )
    answer = shell(f"{PYTHON} {tmp_path}/autosched_interrupted.py")
    assert answer.returncode == 130
    assert answer.stderr.split() == ["autosched:", "interrupted"]


def test_a_bug_is_still_reported_as_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command_table.autosched, "main", lambda *_words, **_more: 1 // 0)
    assert command_table.run(["jobs"]) == 1
    assert "this is a bug in autosched" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def backup(*_words: object, **_more: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "copy.db.new")

    monkeypatch.setattr(command_table.autosched, "main", backup)
    assert command_table.run(["db", "backup"]) == 1
    assert capsys.readouterr().err.startswith("autosched: copy.db.new cannot be written (Read-only file system); ")
