"""One process uses a folder at a time, and others can see which one."""

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

from autosched.process import folder_lock
from deadlines import DEADLINE_S


def hold(folder: Path, pipe: Connection) -> None:
    pipe.send(folder_lock.take(folder) is not None)
    pipe.poll(DEADLINE_S)


def test_another_process_is_kept_out_until_this_one_ends(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert folder_lock.holder(folder) is None
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    other = context.Process(target=hold, args=(folder, there))
    other.start()
    assert here.poll(DEADLINE_S) and here.recv()
    assert folder_lock.take(folder) is None
    assert folder_lock.holder(folder) == other.pid
    here.send("end")
    other.join(DEADLINE_S)
    assert folder_lock.holder(folder) is None
    lock = folder_lock.take(folder)
    assert lock is not None
    assert folder_lock.holder(folder) == os.getpid()
    os.close(lock)
    assert folder_lock.holder(folder) is None
