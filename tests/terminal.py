"""A terminal of 24 lines and 80 characters, and a user who types into the shell in it."""

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
    """A shell ignores Ctrl-C for what it starts in the background, and so for all tests that are started so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A shell runs in it, sooner or later, with our prompt."""

    def __init__(self, command: str, *words: str, folder: Path, **environment: str) -> None:
        there = {**os.environ, "TERM": "xterm", "PS1": PROMPT, **environment}
        self._shell = pexpect.spawn(
            command, list(words), cwd=str(folder), env=there, encoding="utf-8", timeout=DEADLINE_S, dimensions=(24, 80),
            preexec_fn=_heed_interrupts,
        )  # fmt: skip
        self._shell.delaybeforesend = None

    def start(self, line: str) -> None:
        """Type a line, and do not wait for its end."""
        self._shell.sendline(line)

    def wait(self, words: str) -> str:
        """Until this regular expression fits what is shown; what its group took, if it has one."""
        self._shell.expect(words)
        return "".join(self._shell.match.groups()[:1])

    def type(self, line: str, within_s: float = DEADLINE_S) -> str:
        """Type a line; what it shows until the prompt is back."""
        self.start(line)
        return self.prompt(within_s)

    def press(self, key: str, words: str) -> None:
        """Press a key, and wait for what it shows."""
        self._shell.send(key)
        self._shell.expect(words)

    def quit(self) -> str:
        """Press q; what is shown until the prompt is back."""
        self._shell.send("q")
        return self.prompt()

    def end(self) -> str:
        """SIGTERM to what runs; what is shown until the prompt is back."""
        for pid in Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGTERM)
        return self.prompt()

    def interrupt(self) -> str:
        """Ctrl-C; what is shown until the prompt is back."""
        self._shell.sendintr()
        return self.prompt()

    def prompt(self, within_s: float = DEADLINE_S) -> str:
        """The text that is shown until the prompt is back."""
        self._shell.expect_exact(PROMPT, timeout=within_s)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self._shell.before)

    def terminate(self) -> None:
        """SIGTERM to what was started in it, and wait until that has ended."""
        self._shell.kill(signal.SIGTERM)
        self._shell.expect(pexpect.EOF)
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._shell.close(force=True)


def bash(folder: Path, **environment: str) -> Terminal:
    """A shell that knows the `autosched` under test, and no user's settings."""
    terminal = Terminal("bash", "--norc", "--noprofile", "--noediting", "-i", folder=folder, **environment)
    terminal.prompt()
    terminal.type(f'autosched() {{ {shlex.quote(sys.executable)} -m autosched "$@"; }}')
    return terminal
