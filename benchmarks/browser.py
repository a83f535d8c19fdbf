"""Drives a headless Chromium over its debugging protocol, with aiohttp only."""

import asyncio
import base64
import contextlib
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
START_S = 30.0
ANSWER_S = 30.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-extensions", "--hide-scrollbars", "--remote-debugging-port=0",
)  # fmt: skip
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
"""Message of Chromium when an interface of this machine comes or goes, which drops all its requests."""


def installed() -> str | None:
    """Returns the path of Chromium; None when it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class PageGone(Exception):
    """The queried page was replaced by another one."""


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._loads = 0
        self._network_changes = 0
        self.complaints: list[str] = []
        """Errors and warnings of its console: broken scripts, and violations of the content security policy."""

    async def do(self, method: str, **params: object) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_S):
            while True:
                said = await self._socket.receive_json()
                if said.get("id") == number:
                    if "navigated" in said.get("error", {}).get("message", ""):
                        raise PageGone
                    assert "error" not in said, said
                    return dict(said["result"])
                self._listen(said)

    def _listen(self, said: dict[str, Any]) -> None:
        params = said.get("params", {})
        self._loads += said.get("method") == "Page.loadEventFired"
        if said.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(str(details.get("exception", details).get("description", details["text"])))
        elif said.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            text = str(params["entry"]["text"])
            if NETWORK_CHANGED in text:
                self._network_changes += 1
            else:
                self.complaints.append(text)

    async def open(self, url: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> None:
        """Opens an address, and waits until the page is there, since queries during the change fail.

        It reloads when the machine's network has changed meanwhile.
        """
        for domain in ("Page", "Runtime", "Log"):
            await self.do(f"{domain}.enable")
        await self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.do("Emulation.setEmulatedMedia", features=[scheme])
        async with asyncio.timeout(ANSWER_S):
            while True:
                loads, network_changes = self._loads, self._network_changes
                went = await self.do("Page.navigate", url=url)
                while self._loads == loads:
                    self._listen(await self._socket.receive_json())
                if went.get("errorText") != NETWORK_CHANGED and self._network_changes == network_changes:
                    return

    async def ask(self, script: str) -> Any:
        """Returns the value of an expression in the page; promises are awaited."""
        answer = await self.do("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        """Waits until an expression is true, in whatever page is open then."""
        async with asyncio.timeout(ANSWER_S):
            while True:
                with contextlib.suppress(PageGone):
                    if await self.ask(script):
                        return
                await asyncio.sleep(0.02)

    async def picture(self, path: Path, *, whole: bool = False) -> None:
        """Takes a screenshot."""
        answer = await self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """Runs a browser with one empty tab in the block."""
    program = installed()
    assert program is not None, "Chromium is not installed"
    with tempfile.TemporaryDirectory(prefix="autosched-browser-", ignore_cleanup_errors=True) as folder:
        command = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(  # noqa: ASYNC220
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            port = await _port(Path(folder) / "DevToolsActivePort", process)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = await answer.json()
                tab = next(tab for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            process.kill()
            process.wait()


async def _port(file: Path, process: "subprocess.Popen[bytes]") -> int:
    async with asyncio.timeout(START_S):
        while not file.exists() or "\n" not in file.read_text():  # noqa: ASYNC240 - another process writes it
            assert process.poll() is None, "Chromium ended at once"
            await asyncio.sleep(0.02)
    return int(file.read_text().splitlines()[0])  # noqa: ASYNC240
