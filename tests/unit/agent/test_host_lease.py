"""The process beside an agent that ends clients when the lease is over."""

import subprocess
import sys
from pathlib import Path

import msgspec

from autosched.agent.host_lease import KEPT
from deadlines import DEADLINE_S, until

AGENT = """
import sys, time
from pathlib import Path
from autosched.agent.host_lease import HostLease, now_s
folder = Path(sys.argv[1])
lease = HostLease(folder, folder / "jobs")
print("valid" if lease.valid else "over", round(lease.left_s), flush=True)
for word in sys.stdin:
    if word.strip() == "end":
        lease.end()
    else:
        lease.renew(now_s() + float(word))
    print("told", flush=True)
"""
CLIENT = "import time; time.sleep(600)"


class Agent:
    """An agent without a daemon."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.found = self._line()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self._line() == "told"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        with self.process:
            self.process.kill()


def client(folder: Path) -> "subprocess.Popen[bytes]":
    environment = {"AUTOSCHED_JOB_DIR": str(folder / "jobs" / "one")}
    return subprocess.Popen([sys.executable, "-c", CLIENT], env=environment, start_new_session=True)


def guard(folder: Path) -> int:
    return int(msgspec.json.decode((folder / KEPT).read_bytes())["pid"])


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_clients_end_with_the_lease_of_a_dead_agent(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    assert agent.found.startswith("over")
    agent.tell("600")
    one = client(tmp_path)
    agent.kill()
    kept = msgspec.json.decode((tmp_path / KEPT).read_bytes())
    (tmp_path / KEPT).write_bytes(msgspec.json.encode({**kept, "until_s": kept["until_s"] - 599.5}))
    Agent(tmp_path).kill()
    one.wait(DEADLINE_S)
    until(lambda: gone(guard(tmp_path)), "it has nothing left to do")


def test_the_next_agent_continues_the_lease(tmp_path: Path) -> None:
    first = Agent(tmp_path)
    first.tell("600")
    one = client(tmp_path)
    before = guard(tmp_path)
    first.kill()
    second = Agent(tmp_path)
    try:
        word, left_s = second.found.split()
        assert word == "valid"
        assert int(left_s) > 300
        until(lambda: gone(before), "one is enough")
        assert one.poll() is None
        second.tell("700")
    finally:
        one.kill()
        one.wait(DEADLINE_S)
        second.tell("end")
        second.kill()
    until(lambda: gone(guard(tmp_path)), "it ends with an agent that ends in order")


def test_a_lease_of_another_start_of_the_machine_is_over(tmp_path: Path) -> None:
    (tmp_path / KEPT).write_text('{"pid": 1, "born": "another boot/1", "until_s": 1e18}')
    agent = Agent(tmp_path)
    assert agent.found.startswith("over")
    agent.tell("end")
    agent.kill()


def test_a_lease_is_never_shortened(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    agent.tell("600")
    one = client(tmp_path)
    agent.tell("-5")
    agent.kill()
    second = Agent(tmp_path)
    assert second.found.startswith("valid")
    assert one.poll() is None
    one.kill()
    one.wait(DEADLINE_S)
    second.tell("end")
    second.kill()
