"""Words that others wrote cannot control a terminal, forge a line or hide behind marks of direction."""

import asyncio
import re
from pathlib import Path

import pytest

from autosched.errors import RequestError
from autosched.protocol import Done, DrainUnit, HoldJob
from integration.lab import BOARD, Said, command_line, lab

EVIL = "\x1b]0;t\x07\x1b[31mX\x9b2J\u202egnp\r\n.\nOK forged"
BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COMMANDS = (
    "jobs", "jobs -o wide", "jobs -o csv", "jobs -o json", "jobs -o jsonl", "job 1", "job 1 -o json", "explain 1",
    "queue", "devices", "devices -o csv", "device log board", "explain board", "audit", "audit -o csv", "status",
    "info", "gantt",
    "wait 1 --timeout 1s", "job plot 1", "top --once", "hold 1", "release 1", "set 1 --priority 1", "cancel -n 1",
    "attach 2", "fetch 2", "cancel @nothing", "records list", "blocked list",
)  # fmt: skip
CONSOLE = ("jobs", "job 1", "explain 1", "devices", "audit", "jobs -j", "job 1 -j", "get_job job=1", "log board")


def test_no_command_prints_them_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with lab(tmp_path, BOARD) as there:
        command = command_line(there, tmp_path, monkeypatch, capsys)
        with pytest.raises(RequestError, match="one line of visible characters"):
            there.submit(name=EVIL)
        there.submit(name="net", file=EVIL[:100], external=True, output=f"/nowhere/{EVIL}")
        done = there.submit(name="net", file=EVIL[:100], trials=2)
        there.wait(done)
        for method in (HoldJob(job=1, reason=EVIL), DrainUnit(unit="board", reason=EVIL)):
            there.ask(lambda daemon, method=method: daemon.link.call(method, Done))
        raw = {words: found for words in COMMANDS if (found := _raw(command(*words.split())))}
        assert raw == {}
        assert r"\x1b[31mX" in command("explain", "board")[1], "they are shown"
        console = asyncio.run(_typed(tmp_path / "console.sock"))
        assert BAD.findall(console) == []
        assert console.count("\n.\n") == len(CONSOLE) + 1, "no answer is forged"


def _raw(said: Said) -> list[str]:
    return sorted(set(BAD.findall(said[1] + said[2])))


async def _typed(path: Path) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write("".join(f"{line}\n" for line in (*CONSOLE, "quit")).encode())
    answers = (await reader.read(-1)).decode()
    writer.close()
    await writer.wait_closed()
    return answers
