"""`autosched gantt` against a daemon."""

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result

from autosched.cli.gantt import show
from integration.served import attached, run, serving, user


def test_it_shows_the_last_steps_and_writes_a_trace(tmp_path: Path) -> None:
    async def gantt(*words: str) -> Result:
        host = f"unix:{tmp_path}/api.sock"
        return await asyncio.to_thread(CliRunner().invoke, show, words, obj=host, catch_exceptions=False)

    async def work() -> None:
        async with serving(tmp_path):
            assert "Nothing ran in the last 5m00s" in (await gantt()).stderr
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path)
            await puppet.end(await puppet.steps.get())
            shown = await gantt("--last", "1h")
            assert "build" in shown.stdout
            rows = [line for line in shown.stdout.splitlines() if "idle:" not in line]
            assert "\n".join(rows).count("%") == len(await daemon.units())
            assert " idle: " in shown.stdout
            told = await gantt("--trace", str(tmp_path / "trace.json"))
            assert "1 step in" in told.stderr
            events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
            assert [event["name"] for event in events if event["ph"] == "X"] == ["1 build"]
            assert "traceEvents" in json.loads((await gantt("--trace", "-")).stdout)
            assert json.loads((await gantt("-o", "json")).stdout)["steps"][0]["stage"] == "build"
            assert await daemon.spans(3600.0) == await daemon.spans()
            _, other = await attached(daemon, tmp_path)
            await other.steps.get()
            assert [(span.step, span.outcome) for span in await daemon.spans(0.0)] == [(2, "running")]
            daemon.close()

    run(work)
