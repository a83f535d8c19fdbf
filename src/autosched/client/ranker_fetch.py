"""Fetches the rankers of a device model from the daemon's record store."""

import asyncio
import contextlib

from autosched.client.daemon_session import DaemonSession
from autosched.protocol import GetRanker, GetRankers, RankerPart, Rankers

FETCH_S = 10.0
"""Maximum seconds of the fetch; a search without the other rankers is slower, not wrong."""
RANKER_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of a ranker; a larger one is not fetched."""


async def fetch(line: DaemonSession, device: str) -> dict[str, bytes]:
    """The rankers of a device model, by operator family."""
    found: dict[str, bytes] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FETCH_S):
            for family in (await line.ask(GetRankers(device=device), Rankers)).families:
                if content := await _content(line, GetRanker(device=device, family=family)):
                    found[family] = content
    return found


async def _content(line: DaemonSession, first: GetRanker) -> bytes:
    """A whole ranker; empty if it was replaced meanwhile, or is too large."""
    part = await line.ask(first, RankerPart)
    total, content = part.total, bytearray(part.content)
    while len(content) < total <= RANKER_BYTES_MAX:
        part = await line.ask(GetRanker(device=first.device, family=first.family, after=len(content)), RankerPart)
        if part.total != total or not part.content:
            break
        content += part.content
    return bytes(content) if len(content) == total else b""
