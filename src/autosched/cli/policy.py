"""`autosched policy`: the scheduling policy, its reason, and the accuracy of estimates; and the options that choose
it."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from autosched import formatting
from autosched.cli.listings import caller
from autosched.cli.output import data, document, document_option, say
from autosched.model import Goal
from autosched.protocol import ChoosePolicy, GetPolicy, PolicyView

F = TypeVar("F", bound=Callable[..., Any])


def goal_of(_ctx: click.Context, _option: click.Parameter, value: str | None) -> Goal | None:
    """The goal with this name."""
    return None if value is None else Goal(value)


goal_option = click.option(
    "--goal",
    type=click.Choice([goal.value for goal in Goal]),
    callback=goal_of,
    help="Goal of `predictive`: the last job early (makespan), the mean job early (latency), or both.",
)


def policy_options(of: str) -> Callable[[F], F]:
    """`--policy` and `--goal`; `of`: the daemon that they apply to, in words."""

    def options(command: F) -> F:
        policy = click.option("--policy", metavar="NAME", help=f"Scheduling policy {of}. List: autosched policy")
        decorated: F = policy(goal_option(command))
        return decorated

    return options


def serve_words(policy: str | None, goal: Goal | None) -> list[str]:
    """The policy and goal as options of `autosched serve`."""
    return [*(["--policy", policy] if policy else []), *(["--goal", goal.value] if goal else [])]


@click.command()
@click.argument("name", required=False)
@goal_option
@document_option
@click.pass_obj
def policy(host: str | None, name: str | None, goal: Goal | None, style: str) -> None:
    """Print the scheduling policy, its reason, and the accuracy of estimates; with NAME or --goal, change it.

    The choice holds until the daemon restarts; then the setting scheduler.policy applies.
    """
    with caller(host) as daemon:
        chosen = name is not None or goal is not None
        view = daemon.call(ChoosePolicy(policy=name, goal=goal) if chosen else GetPolicy(), PolicyView)
    if style == "json":
        return document("policy", view)
    data("\n".join(facts(view)))
    if chosen:
        say("This holds until the daemon starts again; then scheduler.policy of its configuration does.")


def facts(view: PolicyView) -> Iterator[str]:
    """The policy's state, in a few lines."""
    yield f" policy {view.policy}, goal {view.goal}" + (f", follows the rule {view.rule}" if view.rule else "")
    if (known := view.calibration) is None:
        yield " estimates: none has been put to the test yet"
    else:
        yield f" estimates: half of the recent steps within a factor of {known.typical:.2f}, of {known.steps:,} in all"
        if known.coverage_p90 is not None:
            yield f" {formatting.share(known.coverage_p90, 1.0)} of the steps took no longer than foreseen for 90 %"
    if view.configured != view.policy:
        yield f" at the next start: {view.configured}, as configured"
    yield f" installed: {', '.join(view.installed)}"
    if view.replaced:
        yield f" ! {view.replaced}"
