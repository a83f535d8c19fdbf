"""A child process that runs a Python module and answers on a pipe. It may die or hang at any time."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from autosched.process import isolated_python
from autosched.process.pipe_messages import Lines
from autosched.process.program_runner import how_it_ended


class AnsweringChild:
    """One child in a separate session. `kill` may be called from any thread, other methods from one."""

    def __init__(
        self,
        module: str,
        words: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        output: int | IO[bytes] = 2,
        folder: Path | None = None,
    ) -> None:
        """Start ``python -m module FD words...``: it answers on the file descriptor FD.

        `output`: where its output goes. `folder`: its current folder. Raises OSError.
        """
        answers, theirs = os.pipe()
        command = isolated_python.command(module, str(theirs), *words)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=(theirs,), env=environment,
                cwd=folder, start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(answers)
            raise
        finally:
            os.close(theirs)
        self._answers, self._lines = answers, Lines(answers)

    def tell(self, message: bytes, *, last: bool = False) -> None:
        """Write to its standard input, and close that after the last message. If the child has died, the next `answer`
        shows it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(message)
            self._process.stdin.flush()
        if last:
            self._close_input()

    def answer(self, timeout_s: float) -> bytes | None:
        """Its next answer, undecoded; empty if it has ended, None if the deadline passes first."""
        return self._lines.next(timeout_s)

    def how_it_ended(self) -> str:
        """How a child that answers no more has ended, in words. Processes left in its group are killed."""
        self.kill()  # does not change its own exit code
        return how_it_ended(self._process.wait())

    def kill(self) -> None:
        """Kill it and its group, unless it was waited for: its number may then be another process'."""
        with suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it, and free its resources."""
        self.kill()
        self._process.wait()
        self._close_input()
        os.close(self._answers)

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
