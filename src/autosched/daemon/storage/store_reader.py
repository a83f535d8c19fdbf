"""Runs queries to the record store in a thread, with a deadline.

A store that is unreachable, slow or faulty delays its caller by seconds at most: the caller goes on as if the store
were empty.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autosched.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:  # SQLAlchemy is imported in the thread
    from sqlalchemy.engine import URL

    from autosched.recordstore.catalogue import Catalogue
    from autosched.recordstore.store import RecordStore

log = logging.getLogger(__name__)
T = TypeVar("T")

DEADLINE_S = 5.0
"""Seconds within which the store must answer a query."""
REST_S = 30.0
"""Seconds for which a store that failed is not asked again."""


class StoreReader:
    """A thread with connections to the record store."""

    def __init__(self, url: str | Path, consequence: str) -> None:
        """`url`: URL or file of the store. `consequence`: what follows from its failure, in words for the log."""
        self._url, self._consequence = url, consequence
        self._thread = ThreadPoolExecutor(1, "record lookup")
        self._catalogue: Catalogue | None = None
        self._store: RecordStore | None = None
        self._rests_until = 0.0
        self.trouble = ""
        """Why the store did not answer last time."""

    async def ask(self, query: Callable[["StoreReader"], T]) -> T | None:
        """Run a query in the thread; None, with the reason in `trouble`, if the store does not answer. Raises other
        exceptions of the query."""
        if time.monotonic() < self._rests_until:
            return None
        done = asyncio.get_running_loop().run_in_executor(self._thread, query, self)
        if not (await asyncio.wait({done}, timeout=DEADLINE_S))[0]:
            self._interrupt()
            self._rest(f"the record store does not answer within {DEADLINE_S:.0f} s")
            return None
        try:
            return done.result()
        except (StoreUnavailable, ConfigError) as error:
            self._rest(str(error))
            return None

    def close(self) -> None:
        """Close the connections without waiting."""
        self._interrupt()
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _interrupt(self) -> None:
        for one in (self._catalogue, self._store):
            if one is not None:
                one.interrupt()

    def _rest(self, trouble: str) -> None:
        log.warning("%s; %s", trouble, self._consequence)
        self.trouble, self._rests_until = trouble, time.monotonic() + REST_S

    # In the thread ----------------------------------------------------------------------------------------------------

    def catalogue(self) -> "Catalogue":
        """The store, for searches."""
        from autosched.recordstore.catalogue import Catalogue

        if self._catalogue is None:
            self._catalogue = Catalogue(self._address())
        return self._catalogue

    def store(self) -> "RecordStore":
        """The store, for writes."""
        from autosched.recordstore.store import RecordStore

        if self._store is None:
            self._store = RecordStore(self._address())
        return self._store

    def _address(self) -> "str | URL":
        from autosched.recordstore import opening

        return opening.file_url(self._url) if isinstance(self._url, Path) else self._url

    def _close(self) -> None:
        for one in (self._catalogue, self._store):
            if one is not None:
                one.close()
