"""Sends mutated frames to the daemon of a folder: ``python tests/attackers.py FOLDER FRAMES SEED VALUES``.

Frames are those of tests/wire, and others that hypothesis draws from the names of the protocol and any MessagePack
value; most are mutated byte by byte. Each attacker has its own connection. A line of JSON reports the progress: at the
beginning, and after each fifth.
"""

import asyncio
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
import uvloop

from autosched.api.connection import Daemon
from autosched.errors import AutoschedError
from autosched.protocol import DAEMON_METHODS, PROTOCOL, AskLoad, Done, Heartbeat, Hello, Method, Welcome
from autosched.wire import whereabouts
from autosched.wire.link import Link
from hostile_frames import Mutator, drawn
from integration.served import PROFILE, spec, user

ATTACKERS = 48
FRAMES_EACH = 200
"""Maximum number of frames before an attacker reconnects."""


class Thrown(msgspec.Struct):
    """Progress of the attackers."""

    thrown: int
    connections: dict[str, int] = {}
    """Number of ended connections, by the side that closed them."""


async def _obedient(method: Method) -> msgspec.Struct:
    return PROFILE if isinstance(method, AskLoad) else Done()


class Siege:
    """Attackers of one daemon."""

    def __init__(self, folder: Path, control: Daemon, mutator: Mutator) -> None:
        self._folder, self._control, self._mutator = folder, control, mutator
        # One client only: a job has one at a time.
        self._kinds = ["client", *("stranger" if number % 3 == 0 else "user" for number in range(ATTACKERS - 1))]
        self._links: list[Link | None] = [None] * len(self._kinds)
        self._thrown = [0] * len(self._kinds)
        self._job: tuple[int, str] | None = None
        self.counts: Counter[str] = Counter()

    async def round(self) -> int:
        """Sends one frame of each attacker; returns the number of frames sent once the daemon has read them."""
        frames = 0
        for index, kind in enumerate(self._kinds):
            link = self._links[index]
            if link is None or link.closed or self._thrown[index] >= FRAMES_EACH:
                if link is not None:
                    self.counts[f"{kind}: {'closed' if link.closed else 'stood to the end'}"] += 1
                    link.abort("again")
                link = self._links[index] = await self._come(kind)
                self._thrown[index] = 0
            if not link.closed:
                link._write(self._mutator.frame())
                self._thrown[index] += 1
                frames += 1
        await self._control.link.call(Heartbeat(), Done)
        return frames

    async def _come(self, kind: str) -> Link:
        link = await Link.open(f"unix:{self._folder}/api.sock", serves=DAEMON_METHODS, handler=_obedient)
        with suppress(AutoschedError):
            if kind == "user":
                await link.call(Hello(protocol=PROTOCOL, software="attacker"), Welcome)
            elif kind == "client":
                await self._come_as_client(link)
        link.peer._last_id = 2**64  # so that answers to these frames do not count as protocol errors
        return link

    async def _come_as_client(self, link: Link) -> None:
        for _ in range(2):
            if self._job is None:
                submitted = await self._control.submit(spec())
                self._job = submitted.job, submitted.token
            job, token = self._job
            hello = Hello(protocol=PROTOCOL, software="attacker", role="client", job=job, token=token)
            try:
                await link.call(hello, Welcome)
            except AutoschedError:
                await self._control.cancel(job)
                self._job = None
            else:
                return


async def main(folder: Path, frames: int, seed: int, values: int) -> None:
    """Sends all frames."""
    mutator = Mutator(drawn(values, seed), seed)
    while not (folder / whereabouts.WHEREABOUTS).exists():  # noqa: ASYNC110 - a daemon of another process
        await asyncio.sleep(0.01)
    control = await user(folder)
    siege, told = Siege(folder, control, mutator), Thrown(0)
    _tell(told)
    for fifth in range(1, 6):
        while told.thrown < frames * fifth / 5:
            told.thrown += await siege.round()
        told.connections = dict(siege.counts)
        _tell(told)
    assert (await control.info()).version


def _tell(thrown: Thrown) -> None:
    print(msgspec.json.encode(thrown).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:5])))
