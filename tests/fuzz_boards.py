"""Sends hostile frames to the port for boards: ``python tests/fuzz_boards.py`` (a million), or --frames N.

Exit code 1 when the port has crashed, keeps closed connections, lists boards that do not exist, holds more memory than
before, or does not serve a board and a program any more.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import struct
import sys
import time
from contextlib import suppress
from random import Random

from autosched.daemon.boards.board_registry import BOARDS_MAX
from autosched.process.process_tree import resident_bytes
from tracked_boards import Peer, World, connected, hostile

FRAMES = 1_000_000
OF_A_CONNECTION = 200
"""Maximum number of frames of a connection. All but the last are valid, so that all of them are read."""
WARM = 20_000
"""Number of frames before memory is first measured."""
ASK_EVERY_S = 0.5
GROWTH_BYTES = 32 * 1024**2
"""Maximum growth of memory in bytes: a thousand boards are kept for a week."""


async def throw(world: World, frames: int, draw: Random) -> int:
    """Sends frames on successive connections; returns the number of answers."""
    answers = 0
    while frames > 0:
        count = draw.randint(1, OF_A_CONNECTION)
        frames -= count
        with suppress(ConnectionError, EOFError, AssertionError):
            async with connected(world) as peer:
                who = draw.choice(["pi4", "rk3399", "x" * 99]), draw.randint(1, 300)
                peer.writer.write(b"".join(understood(draw, *who) for _ in range(count - 1)) + hostile(draw))
                peer.writer.write_eof()
                while said := await peer.reader.read(1 << 16):
                    answers += len(said)
    return answers


def understood(draw: Random, key: str, port: int) -> bytes:
    """Returns a valid frame of a server or a program."""
    words = draw.choice(
        [
            [1], [7], [6], [2, "tracker:0.5"], [5, {"key": f"server:{key}", "addr": [None, port]}],
            [3, key, [port, f"{key}:{draw.random()}"], None],
        ]
    )  # fmt: skip
    text = json.dumps(words).encode()
    return struct.pack("<i", len(text)) + text


async def ask_on(board: Peer) -> None:
    """Serves the registration of a waiting server repeatedly."""
    while True:
        assert await board.ask(7) == ["pi4:0.5"], "the board that was there is not known any more"
        await asyncio.sleep(ASK_EVERY_S)


async def fuzz(frames: int, seed: int) -> list[str]:
    """Returns complaints about the daemon after the frames."""
    world, draw, faults = World(), Random(seed), list[str]()
    await world.port.open("127.0.0.1", 0)
    asyncio.get_running_loop().set_exception_handler(lambda _, said: faults.append(str(said)))
    async with connected(world) as board:
        await board.register("good", 9_999)
        asking = asyncio.ensure_future(ask_on(board))
        await throw(world, WARM, draw)
        gc.collect()
        before, started = resident_bytes(os.getpid()), time.perf_counter()
        answered = await throw(world, frames, draw)
        took_s = time.perf_counter() - started
        await asyncio.sleep(0)
        gc.collect()
        grown = resident_bytes(os.getpid()) - before
        if asking.done():
            faults.append(f"the board that was there is lost: {asking.exception()}")
        asking.cancel()
        if len(world.registry.servers) != 1:
            faults.append(f"{len(world.registry.servers)} servers are taken for present, and one is")
    await world.left()
    if len(world.state.boards) > BOARDS_MAX or world.there:
        faults.append(f"{len(world.state.boards)} boards are known, {len(world.there)} as present")
    if grown > GROWTH_BYTES:
        faults.append(f"memory has grown by {grown / 1e6:.0f} MB")
    await world.port.close()
    print(
        f"{frames} frames in {took_s:.0f} s, {answered / 1e6:.0f} MB of answers, memory {grown / 1e6:+.1f} MB,"
        f" {len(world.state.boards)} boards known"
    )
    return faults


def main() -> int:
    """Parses the command line, fuzzes, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    faults = asyncio.run(fuzz(args.frames, args.seed))
    for fault in faults:
        print(f" X  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
