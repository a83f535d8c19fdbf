import os
import socket
from pathlib import Path

import pytest
from msgspec import Struct

from autosched.errors import DaemonUnreachable, NotFound
from autosched.protocol import GetJob, Info, JobList, JobView, ListJobs, Method
from autosched.wire.address import SERVICE
from autosched.wire.blocking_link import BlockingLink, unreachable
from deadlines import DEADLINE_S
from fake import fake_daemon


async def answer(method: Method) -> Struct:
    if isinstance(method, ListJobs):
        return JobList(())
    raise NotFound("there is no job 9")


def test_a_question_is_answered_and_an_error_is_raised_as_what_it_is(tmp_path: Path) -> None:
    with fake_daemon(tmp_path, answer) as address, BlockingLink(address) as daemon:
        assert daemon.welcome.software == "fake"
        assert daemon.call(ListJobs(), JobList) == JobList(())
        with pytest.raises(NotFound, match="there is no job 9"):
            daemon.call(GetJob(job=9), JobView)
        assert daemon.call(ListJobs(), JobList) == JobList(()), "an error must not end the connection"


def test_a_daemon_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with fake_daemon(tmp_path, answer, mute=True) as address, pytest.raises(DaemonUnreachable, match="did not answer"):
        BlockingLink(address, timeout_s=0.1)


def test_a_daemon_that_hangs_up(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(DEADLINE_S)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            server.accept()[0].close()
            caller = BlockingLink.__new__(BlockingLink)
            caller.__dict__.update(_prepared(client, str(path)))
            with pytest.raises(DaemonUnreachable, match=r"closed the connection|Broken pipe|reset"):
                caller.call(Info(), JobList)


def _prepared(client: socket.socket, path: str) -> dict[str, object]:
    from autosched.wire.frames import Peer

    return {"address": f"unix:{path}", "_timeout_s": 1.0, "_peer": Peer({}), "_socket": client}


def test_a_service_is_started_by_systemd() -> None:
    assert "systemctl start autosched" in str(unreachable(f"unix:{SERVICE}", FileNotFoundError()))
    assert "autosched serve" in str(unreachable("unix:/somewhere/else", FileNotFoundError()))


def test_the_socket_of_a_dead_daemon(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # closed without being removed, as by kill -9
    with pytest.raises(DaemonUnreachable, match=r"daemon that made it is dead.*autosched serve") as error:
        BlockingLink(f"unix:{path}")
    assert error.value.exit_code == 3


def test_no_socket_and_no_right(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachable, match=r"there is no socket.*autosched serve"):
        BlockingLink(f"unix:{tmp_path}/none")
    with pytest.raises(DaemonUnreachable, match="Connection refused"):
        BlockingLink("tcp://127.0.0.1:1")
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0)
        with pytest.raises(DaemonUnreachable, match="belongs to another user"):
            BlockingLink(f"unix:{tmp_path}/locked/s")
