"""Processes that belong together: by their mark, and by their parents."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.launch.job_folder import HELPER, JOB_DIR, kill_strays
from autosched.process import client_limits, process_tree
from deadlines import until
from processes import is_dead

MIB = 1024**2
ESCAPES = {
    "session": "setsid sleep 1000",
    "environment": "env -i sleep 1000",
    "both": "setsid env -i sleep 1000",
    "orphan": "sh -c 'setsid env -i sh -c \"sleep 1000 & echo $! >&3\" 3>&1 &'; sleep 0",
    "through a shell": "setsid env -i sh -c 'sleep 1000; exit'",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "jobs" / "7"
    made.mkdir(parents=True)
    yield made
    kill_strays(tmp_path / "jobs")


def worn(folder: Path, program: str) -> subprocess.Popen[str]:
    """A client of this folder that runs a shell program with its mark."""
    client = (
        "import subprocess, sys; from pathlib import Path; from autosched.process import process_tree;"
        f"process_tree.wear(Path({str(folder)!r}));"
        f"subprocess.Popen(['sh', '-c', {program!r}], stdout=subprocess.DEVNULL); sys.stdin.read()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", client], env={**os.environ, JOB_DIR: str(folder)}, stdin=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def marked(folder: Path) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if process_tree.mark_of(pid) == process_tree.mark(folder) and not is_dead(pid)]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def until_sleeps(folder: Path) -> list[int]:
    """The processes of the folder, once the one that escapes is among them."""
    until(lambda: "sleep" in map(_name, marked(folder)), "the process that escapes sleeps")
    return marked(folder)


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_process_that_hides_is_killed_with_its_job(folder: Path, escape: str) -> None:
    client = worn(folder, ESCAPES[escape])
    pids = until_sleeps(folder)
    client.kill()
    client.communicate()
    kill_strays(folder)
    until(lambda: not marked(folder), "what was killed is gone")
    assert all(is_dead(pid) for pid in pids)


def test_others_are_spared(folder: Path) -> None:
    other, helper = folder.with_name("8"), folder / HELPER
    other.mkdir()
    helper.mkdir()
    clients = [worn(one, ESCAPES["both"]) for one in (folder, other, helper)]
    for one in (folder, other, helper):
        until_sleeps(one)
    kill_strays(folder.parent, [other])
    assert (marked(folder), marked(helper), bool(marked(other))) == ([], [], True)
    kill_strays(other)
    assert marked(other) == []
    for client in clients:
        client.communicate()


def test_a_process_without_a_mark_has_none(folder: Path) -> None:
    assert process_tree.mark_of(os.getpid()) != process_tree.mark(folder)
    assert process_tree.mark_of(2**22 + 1) is None
    assert process_tree.mark(folder) != process_tree.mark(folder.with_name("8"))
    assert 0 <= process_tree.mark(folder) < 2**60


HOLDS = f"""
import os, sys
block = bytearray({64 * MIB})
for _ in range(2):
    if os.fork() == 0:
        more = bytearray({32 * MIB})
        os.write(1, b"holds\\n")
        sys.stdin.read()
        os._exit(0)
sys.stdin.read()
"""


def test_the_memory_of_a_tree_counts_what_is_shared_once() -> None:
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline() == "holds\n"
        assert len(list(process_tree.members(process.pid))) == 3
        rough, exact = process_tree.tree_bytes(process.pid), process_tree.exact_tree_bytes(process.pid)
        process.communicate()
    assert rough > (3 * 64 + 2 * 32) * MIB
    assert (64 + 2 * 32) * MIB < exact < (2 * 64 + 2 * 32) * MIB
    assert process_tree.tree_bytes(process.pid) == process_tree.exact_tree_bytes(process.pid) == 0


def test_a_worker_takes_no_more_memory_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    take = f"from autosched.process import client_limits as w; w.limit(); len(bytearray({600 * MIB})); print('taken')"

    def run(most: str) -> str:
        environment = {**os.environ, client_limits.MEMORY_BYTES: most}
        done = subprocess.run(
            [sys.executable, "-c", take], env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    assert run("0") == run("") == run("nonsense") == run(str(900 * MIB)) == "taken"
    assert run(str(300 * MIB)) == "MemoryError"
    monkeypatch.setenv(client_limits.MEMORY_BYTES, str(300 * MIB))
    words = "it needs more memory than 300 MiB, which is limits.client_bytes_max"
    assert client_limits.explained(MemoryError()) == words
    assert client_limits.explained(RuntimeError("TVM: std::bad_alloc. Try")) == f"TVM: {words}. Try"
    assert client_limits.explained(ValueError("no")) == ""
    monkeypatch.delenv(client_limits.MEMORY_BYTES)
    assert client_limits.explained(MemoryError()) == "the machine has too little memory"
