"""Answers to methods about jobs: submit, list, alter, cancel, explain, records and files."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

import msgspec

from autosched.core.events import Event, JobAltered, JobCancelRequested
from autosched.core.explain import explain_job
from autosched.core.state import Job
from autosched.daemon.answers import ANSWERS
from autosched.daemon.observe.views import asked_for, load_view
from autosched.daemon.operations import forecast
from autosched.daemon.operations.user_session import UserSession
from autosched.errors import Refused, RequestError
from autosched.model import JobSpec, encode
from autosched.protocol import (
    FRAME_BYTES,
    ArtifactList,
    BlobState,
    CancelJob,
    Chunk,
    Done,
    ExplainJob,
    Explanation,
    GetBlob,
    GetJob,
    GetLoad,
    GetRecords,
    HoldJob,
    JobList,
    JobView,
    ListArtifacts,
    ListJobs,
    ListSpans,
    LoadView,
    PreviousSettings,
    PutBlob,
    RecordPage,
    ReleaseJob,
    SetJob,
    SpanList,
    Submit,
    Submitted,
)  # fmt: skip
from autosched.protocol.roles import Role

ANSWER_BYTES_MAX = FRAME_BYTES - 32 * 1024
WRITTEN_WITHIN_S = 2.0
"""Maximum seconds that a reader waits for counted records that are not written yet."""
TASKS_SHOWN = 64
LOOKS_PER_TURN = 250
"""Maximum number of jobs that a query reads in one turn of the event loop."""
LOOKS_OF_VIEW = 25
"""Cost of a job's view, in reads of a job."""


@ANSWERS.to(Submit)
async def _submit(session: UserSession, method: Submit) -> Submitted:
    spec = method.spec
    if spec.records_from is not None:
        session.job(spec.records_from)
    for job in spec.learn_from:
        if session.job(job).state.ended and not session.services.progress.get(job).records:
            raise RequestError(f"job {job} measured nothing, so nothing can be learned from it: leave it out")
    expected = forecast.forecast(spec, await _past(session, spec))
    job = await session.services.submissions.take(spec, session.who)
    return Submitted(job, session.services.clients.external_token(job) if spec.external else "", expected)


async def _past(session: UserSession, spec: JobSpec) -> list[forecast.Past]:
    """Earlier jobs of the same network that were measured as a whole. Other work runs between two jobs."""
    found = []
    jobs, registry = session.services.runtime.state.jobs, session.services.progress
    for number in forecast.latest_alike(spec, ((job, jobs[job].spec) for job in reversed(jobs))):
        await asyncio.sleep(0)
        if (job := jobs.get(number)) is None:
            continue
        progress = registry.get(number)
        network, known, result_s = progress.network, progress.status.comparison, progress.status.measured.result_s
        if network is None or result_s is None or job.end is None:
            continue
        found.append(
            forecast.Past(
                number, result_s, progress.trials, len(network.tasks),
                job.end.at - job.submitted_at, progress.first_estimate_s, progress.estimate_s,
                None if known is None else known.baseline.median_s,
            )
        )  # fmt: skip
    return found


@ANSWERS.to(GetJob)
def _get_job(session: UserSession, method: GetJob) -> JobView:
    job = session.job(method.job)
    view = session.view(job, whole=True)
    if len(encode(view)) > ANSWER_BYTES_MAX:  # thousands of operators: only the tasks fit
        view = msgspec.structs.replace(view, skipped=(), tasks=view.tasks[:TASKS_SHOWN], spec=None)
    return view


@ANSWERS.to(GetLoad)
def _load(session: UserSession, method: GetLoad) -> LoadView:
    job = session.job(method.job)
    return load_view(session.runtime.state, job, session.services.progress.get(job.id))


@ANSWERS.to(ListJobs)
async def _list(session: UserSession, method: ListJobs) -> JobList:
    """The latest matching jobs that fit into an answer."""
    jobs, views, size, done = session.runtime.state.jobs, deque[JobView](), 0, 0
    wanted = asked_for(session.runtime.state, method, session.who.name)
    for number in reversed(tuple(jobs)):
        done += 1
        if done > LOOKS_PER_TURN:
            await asyncio.sleep(0)  # clients must not wait for queries
            done = 0
        if (job := jobs.get(number)) is None or not wanted(job):
            continue
        view = session.view(job, whole=False)
        done, size = done + LOOKS_OF_VIEW, size + len(encode(view))
        if size > ANSWER_BYTES_MAX:
            break
        views.appendleft(view)
        if len(views) == method.limit:
            break
    return JobList(tuple(views))


@ANSWERS.to(CancelJob)
async def _cancel(session: UserSession, method: CancelJob) -> Done:
    job = session.own_job(method.job)
    by = "its user" if job.owner in ("", session.who.name) else session.who.name

    def requested() -> Event | None:
        return None if job.state.ended else JobCancelRequested(job.id, by)

    await session.runtime.post(requested)
    return Done()


@ANSWERS.to(HoldJob)
async def _hold(session: UserSession, method: HoldJob) -> Done:
    job = session.own_job(method.job)
    held = f"{method.reason or 'held'} ({session.who.name})"
    await _alter(session, job, lambda: (job.spec.priority, job.spec.deadline_s, held))
    return Done()


@ANSWERS.to(ReleaseJob)
async def _release(session: UserSession, method: ReleaseJob) -> Done:
    job = session.own_job(method.job)

    def released() -> tuple[int, float | None, str]:
        if not job.held:
            raise Refused(f"job {job.id} is not held. Why it waits:  autosched explain {job.id}")
        return job.spec.priority, job.spec.deadline_s, ""

    await _alter(session, job, released)
    return Done()


@ANSWERS.to(SetJob)
async def _set(session: UserSession, method: SetJob) -> PreviousSettings:
    job = session.own_job(method.job)

    def wanted() -> tuple[int, float | None, str]:
        priority, deadline_s = job.spec.priority, job.spec.deadline_s
        if method.deadline_s is not None:
            deadline_s = session.runtime.clock() - job.submitted_at + method.deadline_s if method.deadline_s else None
        return priority if method.priority is None else method.priority, deadline_s, job.held

    return await _alter(session, job, wanted)


async def _alter(
    session: UserSession, job: Job, wanted: Callable[[], tuple[int, float | None, str]]
) -> PreviousSettings:
    """Give a job the wanted priority, deadline in seconds after its submission, and reason why it is held.

    Returns what it had before, when that is durable. Raises Refused for a job that has ended.
    """
    before: PreviousSettings | None = None

    def changed() -> Event | None:
        nonlocal before
        spec = job.spec
        if job.state.ended:
            raise Refused(f"job {job.id} has ended already: {job.state.value}. See:  autosched job {job.id}")
        until = None if spec.deadline_s is None else job.submitted_at + spec.deadline_s
        before = PreviousSettings(spec.priority, until, job.held)
        priority, deadline_s, held = wanted()
        same = (priority, deadline_s, held) == (spec.priority, spec.deadline_s, job.held)
        return None if same else JobAltered(job.id, session.who.name, priority, deadline_s, held)

    await session.runtime.post(changed)
    assert before is not None
    return before


@ANSWERS.to(ExplainJob)
def _explain(session: UserSession, method: ExplainJob) -> Explanation:
    job = session.job(method.job)
    policy, now = session.runtime.scheduler.policy.name, session.runtime.clock()
    lines = explain_job(session.runtime.state, job.id, policy, now)
    if stalled := session.runtime.journal.stalled:
        lines = [f"The daemon waits for its disk: {stalled}.", *lines]
    if trouble := session.runtime.records.trouble:
        lines = [*lines, f"{trouble[0].upper()}{trouble[1:]}."]
    return Explanation(job.id, tuple(lines))


@ANSWERS.to(ListSpans)
async def _spans(session: UserSession, method: ListSpans) -> SpanList:
    running = dict(
        session.runtime.timeline.running
    )  # before reading, so that a step that ends meanwhile is in one of both
    after, store = method.after, session.services.store
    if method.last_s is None:
        spans, more = await store.spans(after)
    else:
        since = session.runtime.clock() - method.last_s
        spans, more = await store.spans_since(after, since, session.runtime.timeline.longest_s)
    by_step = {span.step: span for span in spans}
    last = spans[-1].step if more else None
    for step, span in running.items():
        if step > after and (last is None or step <= last):
            by_step.setdefault(step, span)
    ordered = tuple(by_step[step] for step in sorted(by_step))
    return SpanList(ordered, session.runtime.clock(), more)


@ANSWERS.to(GetRecords)
async def _records(session: UserSession, method: GetRecords) -> RecordPage:
    job = method.job if session.was_pruned(method.job) else session.job(method.job).id
    store = session.services.store
    with contextlib.suppress(TimeoutError):  # a trial that was counted has a record to read
        async with asyncio.timeout(WRITTEN_WITHIN_S):
            await store.flush()
    return await store.records(job, method.after)


@ANSWERS.to(ListArtifacts)
async def _artifacts(session: UserSession, method: ListArtifacts) -> ArtifactList:
    return ArtifactList(await session.services.store.artifacts(session.job(method.job).id))


@ANSWERS.to(PutBlob)
async def _put_blob(session: UserSession, method: PutBlob) -> BlobState:
    blobs = session.services.blobs
    if session.who.role is Role.OPERATOR:
        return await blobs.put(method)
    blobs.check_room()
    return await blobs.put(method, session.who.name)


@ANSWERS.to(GetBlob)
async def _get_blob(session: UserSession, method: GetBlob) -> Chunk:
    return await session.services.blobs.get(method)
