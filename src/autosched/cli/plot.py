"""`autosched plot`: the best latency of a job over time, in the terminal."""

import shutil
import sys

import click

from autosched import formatting
from autosched.cli.listings import caller, the_job
from autosched.cli.output import WIDTH, data, document, document_option, say
from autosched.protocol import GetJob, JobView, RecordPage, SpanList
from autosched.protocol.pagination import answered, records_of, steps_beside
from autosched.text.curve import axis, curve
from autosched.text.gantt import speaks_unicode
from autosched.text.latency_gain import gain

HEIGHT = 10


@click.command()
@click.argument("which", metavar="JOB")
@document_option
@click.pass_obj
def plot(host: str | None, which: str, style: str) -> None:
    """Plot the best latency of a job over time: the estimate for the whole network."""
    from autosched import report

    with caller(host) as daemon:
        job = daemon.call(GetJob(job=the_job(daemon, which)), JobView)
        records = answered(records_of(job.job), lambda asked: daemon.call(asked, RecordPage))
        spans, _ = answered(steps_beside(job), lambda asked: daemon.call(asked, SpanList))
    points = report.gather(job, None, records, spans).estimates
    if style == "json":
        return document("estimates", points)
    if not points:
        return say(f"Job {job.job} has no estimate yet: not every task was measured. See:  autosched job {job.job}")
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, 2 * WIDTH) if sys.stdout.isatty() else WIDTH
    until_s = (job.now if job.ended_at is None else job.ended_at) - job.submitted_at
    best = f"{formatting.latency(job.whole_s)}{gain(job)}"
    data(f" job {job.job} {job.name}: best estimate {best} after {formatting.count(job.trials, 'trial')}")
    pairs = [(point.at_s, point.best_s) for point in points]
    height = HEIGHT if len({latency_s for _, latency_s in pairs}) > 1 else 1
    for line in curve(pairs, until_s, width, height, unicode=speaks_unicode(sys.stdout.encoding)):
        data(line.rstrip())
    data(axis(points[0].at_s, until_s, width))
    return say(f" Where its time goes:  autosched job {job.job}")
