"""Other programs at the console: runs the commands of docs/command-line.md as they are written.

Where one of the programs is missing, test_console.py tests the same over Python sockets.
"""

import asyncio
import json
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import AsyncExitStack
from pathlib import Path
from shlex import quote

import pytest

from autosched.daemon.access import keyring
from autosched.protocol.roles import Role
from autosched.wire.whereabouts import WHEREABOUTS
from deadlines import DEADLINE_S
from integration.served import run, serving
from integration.test_console import TLS_FILES, Typist, everywhere

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/command-line.md").read_text().partition("## The console\n")[2]
LINES = re.findall(r"^    ((?:nc|telnet|exec|openssl|socat|ncat) .+)$", PAGE, re.MULTILINE)


def test_the_page_names_the_usual_tools() -> None:
    assert {line.split()[0] for line in LINES} == {"nc", "telnet", "exec", "openssl", "socat", "ncat"}


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[0])
def test_a_line_of_the_page_reaches_the_console(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = line.split()[0]
    if program != "exec" and shutil.which(program) is None:
        pytest.skip(f"no {program}")
    key, _ = keyring.make(tmp_path / "keys", Role.VIEWER)

    async def work() -> None:
        async with AsyncExitStack() as stack:
            if "lab" in line:
                _, port = await stack.enter_async_context(everywhere(tmp_path, monkeypatch))
            else:
                await stack.enter_async_context(serving(tmp_path, '[console]\nlisten = "127.0.0.1:0"\n'))
                port = json.loads((tmp_path / WHEREABOUTS).read_text())["console"][1].rpartition(":")[2]
            here = line.replace("~/.local/state/autosched", str(tmp_path)).replace("7434", str(port))
            here = (
                here.replace("KEY SECRET", f"{key.id} {key.secret.hex()}")
                .replace("lab", "127.0.0.1")
                .replace("tls.crt", quote(f"{TLS_FILES}/tls.crt"))
            )
            shell = await asyncio.create_subprocess_exec(  # noqa: TID251 - its pipes are what is tested
                "bash", "-c", here, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd=tmp_path
            )
            assert shell.stdout is not None
            assert shell.stdin is not None
            typist = Typist(shell.stdout, shell.stdin)
            while not (said := await typist.line()).startswith("# autosched"):
                assert said, "it ended"
            if program == "exec":  # it types by itself
                assert await typist.answer() == ["OK role=viewer"]
                assert await typist.answer() == ["OK there are none"]
                assert await typist.answer() == ["OK goodbye"]
            else:
                assert await typist.ask(f"auth {key.id} {key.secret.hex()}") == ["OK role=viewer"]
                assert await typist.ask("jobs") == ["OK there are none"]
                assert await typist.ask("quit") == ["OK goodbye"]
            typist.close()
            async with asyncio.timeout(DEADLINE_S):
                await shell.wait()

    run(work)
