"""The end of a connection of the page."""

import asyncio
from typing import Any, cast
from unittest.mock import Mock

from autosched.daemon.web.connections import WebConnection


def test_a_connection_that_goes_after_who_attends_to_it_is_told_to_aiohttp() -> None:
    async def test() -> None:
        inner = Mock()
        visit = WebConnection(cast(Any, inner))
        visit.connection_made(Mock())
        visit.over.cancel()
        visit.connection_lost(None)
        inner.connection_lost.assert_called_once_with(None)

    asyncio.run(test())
