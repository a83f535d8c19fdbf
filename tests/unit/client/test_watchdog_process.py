"""A client that is frozen beyond its step's deadline is killed by its watchdog process, with all its children."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from processes import dies, is_dead

CLIENT = """
import subprocess, sys
from autosched.client.watchdog_process import WatchdogProcess
backstop = WatchdogProcess()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
for line in sys.stdin:
    word, step = line.split()
    if word == "ended":
        backstop.ended(int(step))
    else:
        backstop.expect(int(step), float(word))
    print(child.pid, flush=True)
"""


class Client:
    """A program with a watchdog, and a child."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.child = 0

    def say(self, *lines: str) -> None:
        """Reports a step with a deadline in seconds, or the end of one."""
        assert self.process.stdin is not None and self.process.stdout is not None
        for line in lines:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
            self.child = int(self.process.stdout.readline())

    def freeze(self) -> None:
        """Stops the process, so that its own timers do not run."""
        os.kill(self.process.pid, signal.SIGSTOP)


@contextmanager
def running() -> Iterator[Client]:
    with subprocess.Popen([sys.executable, "-c", CLIENT], stdin=-1, stdout=-1, text=True) as process:
        client = Client(process)
        try:
            yield client
        finally:
            process.kill()
            if client.child and not is_dead(client.child):
                os.kill(client.child, signal.SIGKILL)


def test_a_frozen_client_is_killed_with_all_its_processes() -> None:
    with running() as client:
        client.say("600 1", "0.5 2", "600 3")
        client.freeze()
        assert dies(client.process.pid)
        assert dies(client.child)


def test_a_client_that_ends_its_steps_in_time_is_not_killed() -> None:
    with running() as client:
        client.say("0.3 1", "ended 1", "600 2")
        client.freeze()
        assert not dies(client.process.pid, 1.0)


def test_the_watchdog_ends_with_the_client() -> None:
    with running() as client:
        client.say("600 1")
        group = subprocess.run(["ps", "-o", "pid=", "--ppid", str(client.process.pid)], capture_output=True, text=True)
        beside = [int(pid) for pid in group.stdout.split() if int(pid) != client.child]
        assert len(beside) == 1
        client.process.kill()
        assert dies(beside[0])
