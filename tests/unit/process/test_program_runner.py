import asyncio
import math
import os
import signal
import sys
from pathlib import Path
from shlex import quote

import pytest

from autosched.process import program_runner
from processes import dies

ALONE = {"PATH": os.defpath}


async def shell(line: str, timeout_s: float = 30.0, nice: int = 0) -> program_runner.Ended:
    return await program_runner.run(["sh", "-c", line], timeout_s=timeout_s, nice=nice, environment=ALONE)


@pytest.mark.parametrize(
    ("line", "code", "how", "last_words"),
    [
        ("exit 0", 0, "ended with exit code 0", ""),
        ("echo first >&2; echo last >&2; exit 3", 3, "ended with exit code 3", "last"),
        ("kill -SEGV $$", -11, "was killed by SIGSEGV", ""),
    ],
)
def test_how_a_program_ended(line: str, code: int, how: str, last_words: str) -> None:
    ended = asyncio.run(shell(line))
    assert (ended.code, ended.how, ended.last_words) == (code, how, last_words)


def test_what_it_says_is_kept_whole() -> None:
    ended = asyncio.run(shell(f"{quote(sys.executable)} -c 'print(1_000_000 * \"x\")'; echo oops >&2"))
    assert (len(ended.out), ended.err) == (1_000_001, "oops\n")


def test_its_lines_are_passed_on_while_it_runs(tmp_path: Path) -> None:
    lines: list[str] = []

    def heard(line: str) -> None:
        lines.append(line)
        (tmp_path / "heard").touch()

    line = f"echo first; printf sec; while [ ! -e {tmp_path}/heard ]; do :; done; echo ond; printf last"
    ended = asyncio.run(program_runner.run(["sh", "-c", line], timeout_s=30.0, environment=ALONE, on_line=heard))
    assert lines == ["first", "second", "last"]
    assert ended.out == "first\nsecond\nlast"


def test_it_is_as_nice_as_it_is_told() -> None:
    assert asyncio.run(shell("read ignored < /dev/null; sleep 0.1; nice", nice=7)).out == "7\n"


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(program_runner.run(["/nowhere/program"], timeout_s=1.0))


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_program_that_does_not_end_is_killed_with_all_its_group(tmp_path: Path, cancelled: bool) -> None:
    pid, timeout_s = tmp_path / "pid", 0.1

    async def given_up() -> None:
        async with asyncio.timeout(timeout_s if cancelled else None):
            await shell(f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait", 600.0 if cancelled else timeout_s)

    while not pid.exists():  # on a busy machine it starts later
        timeout_s *= 2
        with pytest.raises(TimeoutError):
            asyncio.run(given_up())
    assert dies(int(pid.read_text()))


def test_left_processes_keep_no_caller_waiting(tmp_path: Path) -> None:
    """In its own group it dies; in its own session it survives, although it holds the output."""
    stranger = f"import os, time; os.setsid(); print(os.getpid(), file=open('{tmp_path}/pid', 'w')); time.sleep(600)"
    line = f'{quote(sys.executable)} -c "{stranger}" & sleep 600 & echo $!; while [ ! -s {tmp_path}/pid ]; do :; done'
    ended = asyncio.run(shell(line))
    assert dies(int(ended.out))
    os.kill(int((tmp_path / "pid").read_text()), 9)  # it exists


@pytest.mark.parametrize(("limit", "said"), [
    (math.inf, "memory runs out"), (260 * 2**20, "memory runs out; its control group has a limit of 260 MiB"),
])  # fmt: skip
def test_a_kill_by_the_system_is_explained(monkeypatch: pytest.MonkeyPatch, limit: float, said: str) -> None:
    monkeypatch.setattr(program_runner, "memory_limit", lambda: limit)
    assert program_runner.killed_by(signal.SIGKILL) == f"killed by SIGKILL, as the system does when {said}"
    assert program_runner.killed_by(signal.SIGSEGV) == "killed by SIGSEGV"
