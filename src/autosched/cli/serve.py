"""`autosched serve`: run the daemon in the foreground."""

from pathlib import Path

import click

from autosched.cli.policy import policy_options
from autosched.model import Goal


@click.command()
@click.option(
    "-c", "--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings; etc/autosched.toml explains all."
)
@click.option("--on-demand", is_flag=True, help="End when there has been nothing to do for a while.")
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Start on a damaged database with what is sound in it; the damaged one is kept. See: autosched db check",
)
@click.option(
    "--cores", type=click.IntRange(1), metavar="N",
    help="Number of cores of the device, where the settings list none. Default: half of them.",
)  # fmt: skip
@policy_options("instead of what the settings say")
def serve(
    config: Path | None, on_demand: bool, accept_data_loss: bool, cores: int | None, policy: str | None,
    goal: Goal | None,
) -> int:  # fmt: skip
    """Run the daemon until it is stopped.

    SIGTERM: it is started again, an upgrade perhaps; clients go on with their steps and find the next one. SIGINT and
    `autosched stop`: clients end with it; their jobs go on from their records some day. Once more: at once.
    """
    from autosched.config import Config, load, with_device_cores, with_policy
    from autosched.daemon import compose
    from autosched.daemon.settings_reload import LiveSettings

    def read() -> Config:
        return with_device_cores(with_policy(load(config), policy, goal), cores)

    settings = LiveSettings(read(), read if config is not None else None, config)
    return compose.run(settings, on_demand, accept_data_loss)
