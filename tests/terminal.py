"""A terminal of 24 lines and 80 characters, and a user who types into its shell."""

import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pexpect

from deadlines import DEADLINE_S

PROMPT = "typed-here> "


def _heed_interrupts() -> None:
    """Restores SIGINT, which a shell makes background processes ignore, including tests."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A terminal that soon runs a shell with our prompt."""

    def __init__(self, command: str, *words: str, folder: Path, **environment: str) -> None:
        there = {**os.environ, "TERM": "xterm", "PS1": PROMPT, **environment}
        self._shell = pexpect.spawn(
            command, list(words), cwd=str(folder), env=there, encoding="utf-8", timeout=DEADLINE_S, dimensions=(24, 80),
            preexec_fn=_heed_interrupts,
        )  # fmt: skip
        self._shell.delaybeforesend = None

    def start(self, line: str) -> None:
        """Types a line without waiting for its end."""
        self._shell.sendline(line)

    def wait(self, words: str) -> str:
        """Waits until this regular expression matches the output; returns its group, if it has one."""
        self._shell.expect(words)
        return "".join(self._shell.match.groups()[:1])

    def type(self, line: str, within_s: float = DEADLINE_S) -> str:
        """Types a line; returns its output up to the prompt."""
        self.start(line)
        return self.prompt(within_s)

    def press(self, key: str, words: str) -> None:
        """Presses a key, and waits for its output."""
        self._shell.send(key)
        self._shell.expect(words)

    def quit(self) -> str:
        """Presses q; returns the output up to the prompt."""
        self._shell.send("q")
        return self.prompt()

    def end(self) -> str:
        """Sends SIGTERM to the running command; returns the output up to the prompt."""
        for pid in Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGTERM)
        return self.prompt()

    def interrupt(self) -> str:
        """Presses Ctrl-C; returns the output up to the prompt."""
        self._shell.sendintr()
        return self.prompt()

    def prompt(self, within_s: float = DEADLINE_S) -> str:
        """Returns the output up to the prompt."""
        self._shell.expect_exact(PROMPT, timeout=within_s)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self._shell.before)

    def terminate(self) -> None:
        """Sends SIGTERM to its children, and waits until they have ended."""
        self._shell.kill(signal.SIGTERM)
        self._shell.expect(pexpect.EOF)
        self.close()

    def close(self) -> None:
        """Closes the terminal."""
        self._shell.close(force=True)


def bash(folder: Path, **environment: str) -> Terminal:
    """Returns a shell with the `autosched` under test, and without a user's settings."""
    terminal = Terminal("bash", "--norc", "--noprofile", "--noediting", "-i", folder=folder, **environment)
    terminal.prompt()
    terminal.type(f'autosched() {{ {shlex.quote(sys.executable)} -m autosched "$@"; }}')
    return terminal
