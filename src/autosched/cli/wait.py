"""`autosched wait`: waits until jobs have ended, for scripts."""

import time

import click

from autosched.cli.listings import caller, chosen, seconds_of
from autosched.cli.output import say
from autosched.errors import JobCancelled, JobFailed
from autosched.model import JobId, JobState
from autosched.protocol import GetJob, JobView
from autosched.text.job_selectors import MANY
from autosched.wire.blocking_link import BlockingLink

TIMED_OUT = 124
"""As in timeout(1)."""
ASK_S = 5.0
"""Seconds for which a request waits for news; less than a connection may be silent."""


@click.command(epilog=MANY)
@click.argument("which", metavar="JOB...", nargs=-1, required=True)
@click.option(
    "--timeout", "timeout_s", callback=seconds_of, metavar="TIME", help="Give up after 90s, 5m, 2h; the jobs continue."
)
@click.pass_obj
def wait(host: str | None, which: tuple[str, ...], timeout_s: float | None) -> int:
    """Wait until jobs have ended. Exit code: 0 all are done, 6 one failed, 7 one was cancelled, 124 the timeout
    passed."""
    until_at = None if timeout_s is None else time.monotonic() + timeout_s
    code = 0
    with caller(host) as daemon:
        for job in chosen(daemon, which):
            view = last_view(daemon, job, until_at)
            if not JobState(view.state).ended:
                say(f"job {job} is still {view.state}: {view.reason}. Follow it:  autosched attach {job}")
                return TIMED_OUT
            if view.state == JobState.FAILED.value:
                code = JobFailed.exit_code
                why = view.failure.message if view.failure is not None else "the reason is not known"
                say(f"job {job} failed: {why}. See:  autosched job {job}")
            elif view.state == JobState.CANCELLED.value:
                code = code or JobCancelled.exit_code
                say(f"job {job} was cancelled. Its measurements are kept:  autosched compile {job}")
    return code


def last_view(daemon: BlockingLink, job: JobId, until_at: float | None = None) -> JobView:
    """The view of a job at its end, or at a moment of the monotonic clock, whichever comes first."""
    view = daemon.call(GetJob(job=job), JobView)
    while not JobState(view.state).ended:
        left_s = ASK_S if until_at is None else until_at - time.monotonic()
        if left_s <= 0:
            break
        view = daemon.call(GetJob(job=job, since=view.version, wait_s=min(left_s, ASK_S)), JobView)
    return view
