"""`autosched fetch`: results of a running job."""

import asyncio
from pathlib import Path

import click

from autosched.api import result_folder
from autosched.api.on_demand import connected
from autosched.cli.output import data, say
from autosched.cli.result_summary import outcome
from autosched.cli.tune import may_be_there, usual_folder, view_of


@click.command()
@click.argument("which", metavar="JOB")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR|FILE.so", help="Default: as submitted.")
@click.pass_obj
def fetch(host: str | None, which: str, output: Path | None) -> int:
    """Fetch the present results of a job: the module, if one is already faster than ONNX Runtime, and a report."""

    async def get() -> result_folder.Result:
        async with connected(host, told=say, start=may_be_there(which)) as daemon:
            view = await view_of(daemon, which)
            folder = result_folder.prepare(output or usual_folder(daemon, view))
            return await result_folder.fetch(daemon, view, folder)

    for line in outcome(asyncio.run(get())):
        data(line)
    return 0
