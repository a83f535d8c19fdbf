"""The report as one self-contained HTML page."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from autosched.backend import Evaluation, NoteGroup, Timing
from autosched.formatting import (
    SHARED_UNITS,
    count,
    disturbed,
    duration,
    failed_steps,
    gflops,
    latency,
    ratio,
    share,
    size,
)
from autosched.model import Identity, JobState
from autosched.report import svg
from autosched.report.data import Report
from autosched.report.evaluation_summary import Standing, advice, distance, label, starts_sentence, verdict
from autosched.stages import STAGES
from autosched.text.latency_gain import goal, goal_advice

WINNERS = {"first": "the search's first", "another": "another candidate", "default": "the default"}


def page(report: Report) -> str:
    """The page's text."""
    job = report.job
    frame = Template(files("autosched.report").joinpath("page.html").read_text(encoding="utf-8"))
    return frame.substitute(
        title=escape(f"{job.name}: autosched report"),
        heading=escape(job.name),
        subtitle=escape(_subtitle(report)),
        problem=_problem(report),
        cards="".join(_card(*card) for card in _cards(report)),
        latencies=_latencies(report),
        style=style(),
        gantt=_gantt(report),
        curve=_curve(report),
        tasks=_tasks(report),
        operators=_operators(report),
        trust=_trust(report),
        failures=_failures(report),
        skipped=_skipped(report),
        about=_about(report),
    )


def style() -> str:
    """Style of self-contained pages."""
    stages = (f".s-{stage} {{ fill: var(--{stage}); background: var(--{stage}); }}" for stage in (*STAGES, "more"))
    return "\n".join((files("autosched.report").joinpath("page.css").read_text(encoding="utf-8").rstrip(), *stages))


def _took_s(report: Report) -> float:
    job = report.job
    return (job.now if job.ended_at is None else job.ended_at) - job.submitted_at


def _subtitle(report: Report) -> str:
    job = report.job
    made_at = report.made_at.replace("T", " ").replace("+00:00", " UTC")
    return f"job {job.job}, {job.state}, {job.backend} on {job.device}, {duration(_took_s(report))}, {made_at}"


def _problem(report: Report) -> str:
    job = report.job
    if job.failure is not None:
        return f'<p class="bad"><strong>{escape(job.failure.message)}</strong></p>'
    if job.state != JobState.DONE.value:
        return f'<p class="bad"><strong>This job is {escape(job.state)}: what follows is not its end.</strong></p>'
    if job.shared_units:
        return f'<p class="bad"><strong>{escape(SHARED_UNITS)}</strong></p>'
    return ""


def _cards(report: Report) -> Iterable[tuple[str, str, str]]:
    job, evaluation = report.job, report.evaluation
    if evaluation is not None:
        found = verdict(evaluation)
        if (against := found.rival_ratio) is not None:
            word = "within the noise" if found.standing is Standing.EQUAL else found.standing.value
            yield f"against {found.rival}", ratio(max(against, 1 / against)), word
        for timing in evaluation.timings:
            if timing.name == evaluation.published:
                yield "latency", latency(timing.median_s), f"{latency(timing.low_s)} to {latency(timing.high_s)}"
        word = "equal" if evaluation.outputs_equal else "DIFFERENT"
        if evaluation.verified:
            yield "outputs", word, f"to {evaluation.reference}, {distance(evaluation)}"
        else:
            yield "outputs", "NOT VERIFIED", "no other engine could compute them"
    elif job.whole_s is not None:
        yield "estimate", latency(job.whole_s), "sum over tasks of calls times best, and the rest as far as measured"
    if job.comparison is not None and (after_s := job.comparison.faster_after_s) is not None:
        runtime = job.comparison.baseline.runtime
        yield f"faster than {runtime}", duration(after_s), "from the start to the first module that could be fetched"
    yield "trials", str(job.trials), f"{job.failed} failed" if job.failed else "none failed"
    yield "tasks", str(len(job.tasks)), f"{len(job.skipped)} skipped" if job.skipped else ""


def _card(name: str, value: str, remark: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"


def _latencies(report: Report) -> str:
    evaluation = report.evaluation
    if evaluation is None:
        return ""
    found, longest = verdict(evaluation), max(timing.median_s for timing in evaluation.timings)
    rows = "".join(_latency_row(t, t.median_s / longest, found.remarks.get(t.name, "")) for t in evaluation.timings)
    cores = ", ".join(map(str, evaluation.cores)) or "not pinned"
    numbers = sorted({len(timing.samples_s) for timing in evaluation.timings})
    samples = f"{numbers[0]} to {numbers[-1]} samples" if numbers[1:] else count(numbers[0], "sample")
    word = "good" if evaluation.outputs_equal else "bad"
    notes = "".join(f"<p>{escape(note)}</p>" for note in evaluation.notes)
    notes += "".join(map(_note_group, evaluation.note_groups))
    told = advice(found, report.expected_gain, trials=report.job.trials, job=report.job.job)
    kind = "bad" if found.standing is Standing.SLOWER else "good" if found.standing is Standing.FASTER else ""
    head = f'<p class="{kind}"><strong>{escape(found.headline)}</strong></p>' + (
        f"<p>{escape(told)}</p>" if told else ""
    )
    for line in (goal(report.job), goal_advice(report.job, report.expected_gain)):
        head += f"<p>{escape(line)}</p>" if line else ""
    start = f"<p>{escape(sentence)}</p>" if (sentence := starts_sentence(evaluation)) else ""
    rejected = f'<p class="bad">{escape(found.difference)}</p>' if found.difference else ""
    return (
        '<section aria-labelledby="latency"><h2 id="latency">Latency of the whole network</h2>'
        f'{head}<table class="bars"><caption>Median of {samples} with its 95 % confidence interval, side by side on'
        f" {count(len(evaluation.cores), 'core').split()[1]} {cores}</caption>"
        '<thead><tr><th scope="col">Build</th><th scope="col" class="n">Median</th>'
        '<th scope="col" class="n optional">95 % interval</th><th scope="col"></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{_forms(evaluation)}{start}"
        f'<p class="{word}">{escape(found.outputs)}</p>{rejected}{notes}</section>'
    )


def _note_group(group: NoteGroup) -> str:
    if len(group.about) == 1:
        return f"<p>{escape(group.line)}</p>"
    names = "".join(f"<li>{escape(name)}</li>" for name in group.about)
    return f"<details><summary>{escape(group.line)}</summary><ul>{names}</ul></details>"


def _forms(evaluation: Evaluation) -> str:
    """The forms of the model that ONNX Runtime was given, if there was a choice."""
    if len(evaluation.forms) < 2:
        return ""
    said = ", ".join(f"{timing.name} {latency(timing.median_s)}" for timing in evaluation.forms)
    return f"<p>ONNX Runtime ran the model in the form that suits it best: {escape(said)}.</p>"


def _latency_row(timing: Timing, part: float, remark: str) -> str:
    kind = "bar tuned" if timing.name == "tuned" else "bar"
    note = f"<small>{escape(remark)}</small>" if remark else ""
    return (
        f'<tr><th scope="row">{escape(label(timing))}</th><td class="n">{latency(timing.median_s)}</td>'
        f'<td class="n optional">{latency(timing.low_s)} to {latency(timing.high_s)}</td>'
        f'<td class="grow"><span class="{kind}" style="width:{100 * part:.1f}%"></span>{note}</td></tr>'
    )


def _gantt(report: Report) -> str:
    names = {task.task: task.name for task in report.job.tasks}
    took_s = _took_s(report)
    drawing = svg.gantt(report.spans, report.job.job, names, took_s)
    if not drawing:
        return '<p class="dim">The daemon no longer knows the steps of this job.</p>'
    own = {span.stage for span in report.spans if span.job == report.job.job}
    keys = [f'<li><span class="s-{stage}"></span>{stage}</li>' for stage in STAGES if stage in own]
    if any(span.job != report.job.job for span in report.spans):
        keys.append('<li><span class="s-other"></span>other jobs</li>')
    busy = "".join(f"<li>{escape(unit)}: {text}</li>" for unit, text in _busy(report, took_s))
    return (
        f'<ul class="legend">{"".join(keys)}</ul>{_scrollable(drawing, "Resource Gantt")}'
        f'<ul class="legend dim">{busy}</ul>'
    )


def _busy(report: Report, took_s: float) -> Iterable[tuple[str, str]]:
    for unit in sorted({unit for span in report.spans for unit in span.units}, key=lambda u: ("/" not in u, u)):
        held = [span for span in report.spans if unit in span.units]
        own_s = sum(_length_s(s.started_at, s.ended_at, took_s) for s in held if s.job == report.job.job)
        all_s = sum(_length_s(s.started_at, s.ended_at, took_s) for s in held)
        others = f", with others {share(all_s, took_s)}" if all_s > own_s else ""
        yield unit, f"busy {share(own_s, took_s)}{others}"


def _length_s(started_at: float, ended_at: float | None, until_s: float) -> float:
    return max(0.0, min(until_s if ended_at is None else ended_at, until_s) - max(0.0, started_at))


def _curve(report: Report) -> str:
    comparison = report.job.comparison
    rival = None if comparison is None else (comparison.baseline.runtime, comparison.baseline.median_s)
    title = "Estimated latency of the network over time"
    drawing = svg.curve(report.estimates, _took_s(report), title=title, rival=rival, builds=report.builds)
    if not drawing:
        return '<p class="dim">There is no estimate until each task has a valid trial.</p>'
    caption = "Line: sum over tasks of calls times best latency, and the rest of the network as last measured."
    caption += " Points: builds of the whole network that were measured." if report.builds else ""
    if any(build.disturbed for build in report.builds):
        caption += " Hollow points: other load ran meanwhile."
    if rival is not None:
        caption += f" Dashed: {rival[0]}."
    return f"<figure>{_scrollable(drawing, 'Latency over time')}<figcaption>{escape(caption)}</figcaption></figure>"


def _tasks(report: Report) -> str:
    if not report.job.tasks:
        return '<p class="dim">None yet: the model has not been imported.</p>'
    took_s = _took_s(report)
    rows = []
    for task, part in report.tasks_by_share:
        points = report.task_curves.get(str(task.task), ())
        gain = ratio(task.first_s / task.best_s) if task.first_s and task.best_s else "-"
        rows.append(
            f'<tr><td>{escape(task.name)}<small>{escape(task.shape)}</small></td><td class="n">{task.weight}</td>'
            f'<td class="n">{_part(part)}</td><td class="n">{task.trials}</td>'
            f'<td class="n optional">{task.failed or "-"}</td><td class="n optional">{latency(task.first_s)}</td>'
            f'<td class="n">{latency(task.best_s)}</td><td class="n">{gain}</td>'
            f'<td class="n optional">{gflops(task.flops, task.best_s)}</td>'
            f'<td class="optional">{escape(task.came_from) or svg.sparkline(points, took_s)}</td></tr>'
        )
    heads = (
        ("Task", ""), ("Calls", "n"), ("Share", "n"), ("Trials", "n"), ("Failed", "n optional"),
        ("First", "n optional"), ("Best", "n"), ("Gain", "n"), ("GFLOP/s", "n optional"),
        ("Best over time, or where it comes from", "optional"),
    )  # fmt: skip
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in heads)
    return _scrollable(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>", "Tasks")


def _operators(report: Report) -> str:
    """The time of each operator within the network."""
    times = report.evaluation.operators if report.evaluation is not None else None
    if times is None:
        return '<p class="dim">They were not measured one by one.</p>'
    longest = max(row.time_s for row in times.rows) or 1.0
    rows = "".join(
        f'<tr><td>{escape(row.name)}</td><td>{escape(row.schedule)}</td><td class="n">{row.calls}</td>'
        f'<td class="n">{latency(row.time_s)}</td><td class="n">{share(row.time_s, times.whole_s)}</td>'
        f'<td class="grow optional"><span class="bar{" tuned" if row.schedule == "tuned" else ""}"'
        f' style="width:{100 * row.time_s / longest:.1f}%"></span></td></tr>'
        for row in times.rows
    )
    heads = (("Operator", ""), ("Schedule", ""), ("Calls", "n"), ("Time", "n"), ("Share", "n"), ("", "optional"))
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in heads)
    whole = f"{latency(times.sum_s)} of {latency(times.whole_s)} ({share(times.sum_s, times.whole_s)})"
    table = f'<table class="bars"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f"<p>Measured inside of the network; their sum explains {whole}.</p>{_scrollable(table, 'Operators')}"


def _part(part: float | None) -> str:
    """A task's share of the latency; none for one that lost to another."""
    return "-" if part is None else share(part, 1.0) if part else "unused"


def _trust(report: Report) -> str:
    """Finals, disturbed records, and the health of devices."""
    parts = [f"<p>{escape(unit)}: {escape(health)}</p>" for unit, health in report.health.items()]
    if report.job.disturbed_records:
        parts.append(f'<p class="bad">{escape(disturbed(report.job.disturbed_records, report.job.records))}</p>')
    if report.finals:
        heads = ("Task", "Candidates", "Search said", "Best now", "Default", "Winner")
        head = "".join(f'<th scope="col"{" class=n" if 0 < i < 5 else ""}>{name}</th>' for i, name in enumerate(heads))
        rows = "".join(
            f'<tr><td>{escape(final.name)}</td><td class="n">{final.candidates}</td>'
            f'<td class="n">{latency(final.search_s)}</td><td class="n">{latency(final.best_s)}</td>'
            f'<td class="n">{latency(final.default_s)}</td><td>{WINNERS[final.winner]}</td></tr>'
            for final in report.finals
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        parts.append("<p>The best candidates of each task and its default, measured in turn: the median decides.</p>")
        parts.append(_scrollable(table, "Finals"))
    return "".join(parts) or '<p class="dim">The devices were not watched.</p>'


def _failures(report: Report) -> str:
    steps = failed_steps(report.job.failed_steps, report.job.last_error)
    parts = [f"<p>{escape(steps)}</p>"] if steps else []
    if not report.failures:
        return "".join(parts) or '<p class="dim">None.</p>'
    for group in report.failures:
        examples = "".join(f"<pre>{escape(text)}</pre>" for text in group.examples) or "<p>No message.</p>"
        parts.append(f"<details><summary>{group.count} {escape(group.reason)}</summary>{examples}</details>")
    rate = share(report.job.failed, report.job.trials)
    return f"<p>{rate} of all trials. A failed trial costs its time and nothing else.</p>{''.join(parts)}"


def _skipped(report: Report) -> str:
    if not report.job.skipped:
        return '<p class="dim">None.</p>'
    rows = "".join(f"<tr><td>{escape(n)}</td><td>{escape(why)}</td></tr>" for n, why in report.job.skipped)
    head = '<thead><tr><th scope="col">Operator</th><th scope="col">Why</th></tr></thead>'
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _about(report: Report) -> str:
    machine, spec = report.machine, report.job.spec
    facts: list[tuple[str, str]] = [
        ("target", report.job.target), ("machine", f"{machine.host}, {machine.cpu}, {count(machine.cores, 'core')}, "
         f"{size(machine.memory_bytes)}"), ("system", f"{machine.system}, Python {machine.python}, {report.software}"),
    ]  # fmt: skip
    facts += [
        (f"measured from record {one.number} on" if one.number else "measured", _identity(one.identity))
        for one in report.job.identities
    ]
    if spec is not None:
        options = " ".join(f"{name}={value}" for name, value in spec.options.items())
        facts += [("seed", str(spec.seed)), ("options", options or "defaults"), ("model", f"sha256 {spec.model}")]
    return _fact_table(facts)


def _identity(known: Identity) -> str:
    return ", ".join(part for part in (known.device, known.target, known.compiler, known.backend) if part)


def _fact_table(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(k)}</th><td><code>{escape(v)}</code></td></tr>' for k, v in facts)
    return f"<table><tbody>{rows}</tbody></table>"


def _scrollable(content: str, name: str) -> str:
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(name)}">{content}</div>'
