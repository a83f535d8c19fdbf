"""`autosched serve`: run the daemon in the foreground."""

from pathlib import Path

import click

from autosched.cli.policy import policy_options
from autosched.model import Goal


@click.command()
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings file; etc/autosched.toml explains all settings.",
)
@click.option("--on-demand", is_flag=True, help="Stop the daemon when it has been idle for a while.")
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Replace a damaged database with its sound rows; the damaged one is kept. See: autosched db check",
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

    SIGTERM: for a restart, perhaps an upgrade; clients continue their steps and reconnect to the next daemon. SIGINT
    and `autosched stop`: clients end too; their jobs resume from their records at the next start. A second signal ends
    the daemon at once.
    """
    from autosched.config import Config, load, with_device_cores, with_policy
    from autosched.daemon import compose
    from autosched.daemon.settings_reload import LiveSettings

    def read() -> Config:
        return with_device_cores(with_policy(load(config), policy, goal), cores)

    settings = LiveSettings(read(), read if config is not None else None, config)
    return compose.run(settings, on_demand, accept_data_loss)
