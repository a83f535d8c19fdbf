"""`autosched serve`: run the daemon in the foreground."""

from pathlib import Path

import click


@click.command()
@click.option(
    "-c", "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; etc/autosched.toml explains all."
)
@click.option("--on-demand", is_flag=True, help="End when there has been nothing to do for a while.")
def serve(config: Path | None, on_demand: bool) -> int:
    """Run the daemon until it is stopped: SIGTERM, SIGINT or `autosched stop`."""
    from autosched.config import load
    from autosched.daemon import main

    return main.run(load(config), on_demand=on_demand)
