"""A backend that attacks from within its client, where a job's program has most power, and then works as the mock.

Its log tells which attempts succeeded: the client's log names them behind MARK.
"""

MARK = "ATTEMPTS:"
BACKEND = """
import ctypes
import json
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys

import msgspec
from autosched_backend_mock import MockBackend


def connected(path):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(5.0)
        peer.connect(path)
        import msgpack

        frame = msgpack.packb([0, 1, "hello", {"protocol": [1, 10], "software": "x", "role": "user"}])
        peer.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = peer.recv(65536)
        return b"refused" not in answer and b"role" in answer and repr(answer)


def attempts(state, page):
    for path in ("keys/operator-boss.key", "keys", "autosched.db", "daemon.json", "blobs", "jobs", "cache"):
        there = pathlib.Path(state, path)
        yield f"read {path}", lambda there=there: os.listdir(there) if there.is_dir() else there.read_bytes()[:4]
    yield "write beside", lambda: pathlib.Path(state, "planted").write_text("x")
    yield "write a package", lambda: pathlib.Path(msgspec.__file__).with_name("planted.py").write_text("x")
    yield "write to the system", lambda: pathlib.Path("/usr/planted").write_text("x")
    yield "read home", lambda: os.listdir(os.environ["REAL_HOME"]) if "REAL_HOME" in os.environ else None
    yield "read shadow", lambda: pathlib.Path("/etc/shadow").read_text()
    for name in ("api.sock", "door/clients.sock", "console.sock"):
        yield f"speak as a user at {name}", lambda name=name: connected(f"{state}/{name}")
    yield "reach the page", lambda: socket.create_connection(("127.0.0.1", page), 2.0) and "reached"
    for pid in PIDS:
        yield f"see the process {pid}", lambda pid=pid: os.path.exists(f"/proc/{pid}") and pid > 20 and "seen"
        yield f"signal {pid}", lambda pid=pid: os.kill(pid, 0) or (pid > 20 and "signalled")
    secrets = [name for name in os.environ if "SECRET" in name or "PASS" in name or name == "AUTOSCHED_KEY"]
    yield "see the environment", lambda: secrets
    yield "get rights", lambda: os.setuid(12345) or "got them"
    yield "make a device", lambda: os.mknod("/tmp/sda", 0o60600, os.makedev(8, 0)) or "made it"
    yield "mount", lambda: ctypes.CDLL(None).mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0 and "mounted"


class Attacker(MockBackend):
    def open(self, job, *where):
        done = {}
        for name, work in attempts(STATE, PAGE):
            try:
                if got := work():
                    done[name] = repr(got)[:200]
            except Exception:
                pass
        child = subprocess.Popen(
            ["setsid", "env", "-i", sys.executable, "-c", "import time; time.sleep(600)", "escaped-child"],
            env={"PATH": os.environ["PATH"]},
        )
        pathlib.Path(os.environ["AUTOSCHED_JOB_DIR"], "attempts.log").write_text("ATTEMPTS:" + json.dumps(done))
        return super().open(job, *where)
"""


def backend(state: str, page: int, pids: "list[int]") -> str:
    """The module of the backend, against a daemon with this state folder, port of the page, and other processes."""
    return f"STATE, PAGE, PIDS = {state!r}, {page}, {pids}\n{BACKEND}"
