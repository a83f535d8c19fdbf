"""Submissions in the name of a key, over TCP."""

import asyncio
import json
import os

from autosched.api.connection import Daemon
from autosched.model import JobSpec
from autosched.wire import keys
from autosched.wire.keys import Key
from autosched.wire.whereabouts import WHEREABOUTS
from integration.lab import MODEL, Lab


def submit_with(there: Lab, key: Key, **words: object) -> int:
    """Submits a job of the mock backend with a key. Keywords are fields of JobSpec."""
    address = json.loads((there.folder / WHEREABOUTS).read_text())["addresses"][-1]
    (there.folder.parent / "model").write_bytes(MODEL)

    async def ask() -> int:
        daemon = await Daemon.connect(address)
        try:
            model = await daemon.upload(there.folder.parent / "model")
            fields = {"name": "net", "backend": "mock", "fresh": True, **words}
            return (await daemon.submit(JobSpec(model=model, **fields))).job  # type: ignore[arg-type]
        finally:
            daemon.close()
            await daemon.link.wait_closed()

    os.environ[keys.VARIABLE] = key.line()
    try:
        return asyncio.run(ask())
    finally:
        del os.environ[keys.VARIABLE]
