"""Control groups of clients: files of a made-up hierarchy, and the kernel's own where it has one."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.process import control_group
from autosched.process.control_group import CONTROLLERS, MAIN_PROCESS, OWN, ControlGroup, ControlGroups
from autosched.process.detached_process import LACK, Process, birth
from deadlines import DEADLINE_S

MIB = 1 << 20


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The delegated group of this process, which is a service's main process."""
    folder = tmp_path / "system.slice/autosched.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (folder / "cgroup.subtree_control").write_text("")
    monkeypatch.setenv(MAIN_PROCESS, str(os.getpid()))
    monkeypatch.setattr(control_group, "_group_of", lambda pid: folder)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1" if name == "user.delegate" else b"")
    control_group.delegated.cache_clear()
    yield folder
    control_group.delegated.cache_clear()


def test_a_service_moves_itself_aside_and_gives_its_clients_limits(unit: Path) -> None:
    groups = control_group.delegated()
    assert groups is not None
    assert (unit / OWN / "cgroup.procs").read_text() == str(os.getpid())
    assert (unit / "cgroup.subtree_control").read_text().split() == [f"+{name}" for name in CONTROLLERS]
    group = groups.new(5 * MIB, 7)
    assert group.folder.parent == unit
    assert ((group.folder / "memory.max").read_text(), (group.folder / "pids.max").read_text()) == (str(5 * MIB), "7")
    group.limit(0, 0)
    assert ((group.folder / "memory.max").read_text(), (group.folder / "pids.max").read_text()) == ("max", "max")


def test_after_the_service_the_controllers_are_released(unit: Path) -> None:
    ControlGroups(unit).release()
    assert (unit / "cgroup.subtree_control").read_text().split() == [f"-{name}" for name in CONTROLLERS]


@pytest.mark.parametrize("group", [OWN, ".control"])
def test_the_unit_of_a_process_in_a_group_below_it(unit: Path, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_group, "_group_of", lambda pid: unit / group)
    groups = control_group.delegated()
    assert groups is not None
    assert groups.new(0, 0).folder.parent == unit


@pytest.mark.parametrize("main_process", ["1", ""])
def test_groups_of_others_are_left_alone(unit: Path, main_process: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAIN_PROCESS, main_process)
    assert control_group.delegated() is None, "such as the shell's, from which a daemon is started"
    assert not (unit / OWN).exists()


def test_a_group_that_is_not_delegated_is_not_divided(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"0")
    assert control_group.delegated() is None


def test_without_the_controllers_there_are_no_groups(unit: Path) -> None:
    (unit / "cgroup.subtree_control").unlink()
    (unit / "cgroup.subtree_control").mkdir()
    assert control_group.delegated() is None


def test_what_the_kernel_counts(tmp_path: Path) -> None:
    group = ControlGroup(tmp_path)
    assert (group.memory_bytes, group.was_full) == (None, False), "without the controller"
    (tmp_path / "memory.stat").write_text("anon 700\nfile 9999\nkernel 5\nshmem 42\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 0\noom_kill 3\noom_group_kill 0\n")
    assert (group.memory_bytes, group.was_full) == (742, False), "files that were read do not count"
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 0\n")
    assert group.was_full


def test_groups_of_earlier_clients_are_cleared_but_for_those_that_live_on(
    unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ControlGroups(unit)
    kept, left = groups.new(0, 0), groups.new(0, 0)
    for group in (kept, left):
        for path in group.folder.iterdir():
            path.unlink()  # the kernel's files go with their group
    monkeypatch.setattr(control_group, "_group_of", lambda pid: {7: kept.folder / "inner", 8: unit / OWN}[pid])
    monkeypatch.setattr(ControlGroup, "kill", lambda group: killed.append(group))
    killed: list[ControlGroup] = []
    groups.clear([7, 8])
    assert killed == [left]
    assert (kept.folder.exists(), left.folder.exists()) == (True, False)


@pytest.fixture
def real() -> Iterator[ControlGroups]:
    """Groups of the kernel, with or without controllers."""
    mounted = control_group.mounted()
    if mounted is None or not os.access(mounted / "cgroup.procs", os.W_OK) or os.geteuid() != 0:
        pytest.skip("this process may make no control groups of version 2")
    folder = mounted / f"autosched-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield ControlGroups(folder)
    finally:
        ControlGroup(folder).kill()
        ControlGroup(folder).remove()


async def is_gone(group: ControlGroup) -> None:
    while group.folder.exists():  # noqa: ASYNC110 - the kernel reports no end of a group
        await asyncio.sleep(0.01)


HIDES = "import subprocess, time; subprocess.Popen(['setsid', 'env', '-i', 'sleep', '1000']); print('up', flush=True)"


def test_what_has_left_its_session_and_environment_dies_with_its_client(real: ControlGroups, tmp_path: Path) -> None:
    async def story() -> None:
        group = real.new(0, 0)
        process = Process.start([sys.executable, "-c", HIDES], os.environ, tmp_path / "log", None, group)
        assert await process.wait() == "exit code 0"
        await is_gone(group)

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


def test_an_adopted_client_is_killed_with_its_group(
    real: ControlGroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_group, "delegated", lambda: real)
    command = ["/bin/sh", "-c", "setsid -f sleep 1000; exec sleep 1000"]

    async def story() -> None:
        group = real.new(0, 0)
        started = Process.start(command, os.environ, tmp_path / "log", None, group)
        started.forget()
        while len((group.folder / "cgroup.procs").read_text().split()) < 2:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        adopted = Process.adopt(started.pid, birth(started.pid), tmp_path / "log")
        assert adopted is not None
        assert real.of(started.pid) == group
        adopted.kill()
        assert await adopted.wait() == "it ended"
        await is_gone(group)

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


def test_a_client_that_the_kernel_killed_for_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = ControlGroup(tmp_path / "client-1")
    group.folder.mkdir()
    monkeypatch.setattr(ControlGroup, "was_full", property(lambda group: True))
    command = ["/bin/sh", "-c", "echo last; kill -9 $$"]

    async def story() -> str:
        process = Process.start(command, os.environ, tmp_path / "log", None, group)
        return await asyncio.wait_for(process.wait(), DEADLINE_S)

    assert asyncio.run(story()) == f"killed by SIGKILL{LACK}"


def test_a_client_sets_its_number_of_tasks() -> None:
    program = "import resource; from autosched.process import client_limits as c; c.limit_tasks()"
    program += "; print(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
    for given, said in (("777", "777"), ("", None)):
        environment = {**os.environ, "AUTOSCHED_TASKS_MAX": given}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert said is None or done.stdout.strip() == said, done.stderr
