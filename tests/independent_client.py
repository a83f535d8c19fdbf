"""A client written from docs/protocol.md alone, with the standard library and msgpack.

python independent_client.py SOCKET: submits an external job, hosts it, and prints its number. The job tunes one
invented task: candidates are numbers, the latency is their distance to 7 in milliseconds.
"""

import hashlib
import itertools
import json
import socket
import struct
import sys
import threading
from collections import deque
from typing import Any

import msgpack

HEARTBEAT_S = 5.0
DEADLINE_S = 60.0
BODY_BYTES_MAX = 524_288
PIECE_BYTES = 262_144
PROTOCOL = [2, 0]
CANDIDATES = (1, 3, 6, 12)
ROUND = 2


class Refused(Exception):
    """The peer answered with an error."""


class Connection:
    """Frames and messages; requests of the peer are kept until they are read."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(path)
        self._ids = itertools.count(1)
        self._lock = threading.Lock()  # the heartbeat writes too
        self.asked: deque[tuple[int | None, str, dict[str, Any]]] = deque()
        """Id (None: a notification), method and params."""

    def send(self, message: list[Any]) -> None:
        body = msgpack.packb(message)
        with self._lock:
            self._socket.sendall(struct.pack(">I", len(body)) + body)

    def receive(self) -> list[Any]:
        (length,) = struct.unpack(">I", self._exactly(4))
        assert length <= BODY_BYTES_MAX
        message: list[Any] = msgpack.unpackb(self._exactly(length))
        return message

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the daemon closed the connection")
            data += piece
        return data

    def call(self, method: str, **params: Any) -> Any:
        id = next(self._ids)
        self.send([0, id, method, params])
        while True:
            kind, *rest = self.receive()
            if kind == 1 and rest[0] in (0, id):
                if rest[1] is not None:
                    raise Refused(": ".join(rest[1]))
                return rest[2]
            self._keep(kind, rest)

    def next_asked(self) -> tuple[int | None, str, dict[str, Any]]:
        while not self.asked:
            kind, *rest = self.receive()
            self._keep(kind, rest)
        return self.asked.popleft()

    def _keep(self, kind: int, rest: list[Any]) -> None:
        assert kind in (0, 2), (kind, rest)
        self.asked.append((rest[0], rest[1], rest[2]) if kind == 0 else (None, rest[0], rest[1]))

    def tell(self, method: str, **params: Any) -> None:
        self.send([2, method, params])

    def answer(self, id: int, result: Any) -> None:
        self.send([1, id, None, result])

    def upload(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        for offset in range(0, len(data), PIECE_BYTES):
            piece = data[offset : offset + PIECE_BYTES]
            state = self.call("put_blob", sha256=digest, total=len(data), offset=offset, data=piece)
        assert state["complete"]
        return digest


def wish(task: int, stage: str, pool: str) -> dict[str, Any]:
    return {"tasks": [{"task": task, "stage_next": stage, "resources_next": [pool]}]}


class Job:
    """Task 0 is imported and evaluated; in between, task 1 is built and measured, two candidates at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._left = deque(CANDIDATES)
        self._round: list[int] = []
        self._trial = itertools.count()

    def first(self) -> dict[str, Any]:
        return wish(0, "import", "host")

    def step(self, stage: str, units: list[str]) -> dict[str, Any]:
        """Runs a step; returns the load afterwards."""
        match stage:
            case "import":
                task = {"task": 1, "name": "distance", "workload": "distance-to-7"}
                self._connection.call("plan_network", network={"tasks": [task]}, trials=len(CANDIDATES))
                done = {"tasks": [{"task": 0}]}
                return {"tasks": [*done["tasks"], *wish(1, "build", "host")["tasks"]]}
            case "build":
                self._round = [self._left.popleft() for _ in range(ROUND)]
                return wish(1, "profile", "device:cpu")
            case "profile":
                for number in self._round:
                    record = {"task": 1, "number": next(self._trial), "candidate": b"%d" % number, "unit": units[0]}
                    self._connection.tell("add_record", record={**record, "latency_s": [1e-3 * abs(number - 7)]})
                if self._left:
                    return wish(1, "build", "host")
                return {"tasks": [{"task": 1, "complete": True}, *wish(0, "evaluate", "device:cpu")["tasks"]]}
            case "evaluate":
                digest = self._connection.upload(json.dumps({"best": 6}).encode())
                self._connection.call("add_artifacts", files=[{"name": "best.json", "sha256": digest}])
                return {"tasks": [{"task": 0, "complete": True}], "complete": True}
        raise ValueError(stage)


def host(connection: Connection) -> None:
    """Answers the daemon until it says stop."""
    job = Job(connection)
    while True:
        id, method, params = connection.next_asked()
        if method == "ask_load":
            assert id is not None
            connection.answer(id, job.first())
        elif method == "start_step":
            assert id is not None
            connection.answer(id, {})
            step = params["step"]
            load = job.step(step["stage"], step["units"])
            connection.call("end_step", step=step["id"], outcome="done", load=load)
        elif method == "stop":
            return
        elif id is not None:
            connection.answer(id, {})


def main(path: str) -> None:
    user = Connection(path)
    user.call("hello", protocol=PROTOCOL, software="independent", role="user")
    model = user.upload(b"seven")
    spec = {"name": "seven", "model": model, "external": True, "backend": "independent"}
    submitted = user.call("submit", spec=spec)
    client = Connection(path)
    client.call(
        "hello",
        protocol=PROTOCOL,
        software="independent",
        role="client",
        job=submitted["job"],
        token=submitted["token"],
    )
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_S):
            client.tell("heartbeat")

    threading.Thread(target=beat, daemon=True).start()
    host(client)
    over.set()
    print(submitted["job"])


if __name__ == "__main__":
    main(sys.argv[1])
