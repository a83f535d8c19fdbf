"""`autosched demo`: the whole of autosched in under three minutes."""

import click


@click.command()
def demo() -> int:
    """Show what autosched does: a simulated lab, then two real networks tuned at the same time."""
    from autosched.demo import main

    return main()
