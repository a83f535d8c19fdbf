"""Checks submissions and makes them jobs. A refusal says what would be accepted."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from autosched import backend, device_types
from autosched.core.events import Event, JobCancelRequested, JobSubmitted
from autosched.core.state import State
from autosched.daemon.access.admission import Admission
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.event_stream.daemon_events import SubmissionRefused
from autosched.daemon.runtime import Runtime
from autosched.daemon.settings_reload import LiveSettings
from autosched.daemon.storage.blob_store import Blobs
from autosched.errors import Busy, NotFound, Refused, RequestError, StorageFull
from autosched.model import CudaDevice, JobId, JobSpec, RpcServer, Unit, device_kind
from autosched.protocol.roles import Role
from autosched.text.job_selectors import labels
from autosched.text.visible import one_line

SUBMIT_S = 15.0
"""Maximum seconds to store a submission; then it is refused."""
UNSTORED = "the daemon, which could not store it in time and has told its user so"


class Submissions:
    """Accepts jobs, as many at the same time as can be stored."""

    def __init__(
        self,
        settings: LiveSettings,
        runtime: Runtime,
        blobs: Blobs,
        admission: Admission,
        refusal: Callable[[str], str],
    ) -> None:
        """`refusal`: why no job of an owner is accepted; empty if it is."""
        self._settings, self._runtime, self._blobs, self._admission = settings, runtime, blobs, admission
        self._refusal = refusal

    async def take(self, spec: JobSpec, who: Principal) -> JobId:
        """Submit a job. Raises RequestError, NotFound, Refused, Busy, and StorageFull when it cannot be stored."""
        owner = who.name
        spec = for_device(spec, _kinds(self._runtime.state))
        if reason := self._refusal(owner):
            raise Refused(reason)
        self._check(spec)
        given_up, job = False, 0

        def submitted() -> Event | None:
            nonlocal job
            if given_up:
                return None
            state, limit = self._runtime.state, self._settings.now.limits.jobs_active_max
            if len(state.active) >= limit:
                raise Refused(f"{limit} jobs are active, which is limits.jobs_active_max; try again when one has ended")
            most, quota = self._quota(who)
            if most is not None and sum(state.jobs[job].owner == owner for job in state.active) >= most:
                raise Refused(f"{most} jobs of {owner} are active, which is {quota}; try again when one has ended")
            job = state.last_job + 1
            self._look_for_model(spec)  # again: pruning may have deleted it; from here on the job refers to it
            self._look_for_earlier(spec)
            for sha256 in (spec.model, spec.inputs):
                self._blobs.uploads.used(sha256)
            return JobSubmitted(job, spec, owner)

        def withdrawn() -> Event | None:
            return None if self._runtime.state.jobs[job].state.ended else JobCancelRequested(job, UNSTORED)

        stored = False
        try:
            async with asyncio.timeout(SUBMIT_S), self._admission.turn(owner):
                stored = await _before(self._runtime.journal.stalls, self._runtime.post(submitted))
        except Busy as error:
            self._runtime.stream.publish(SubmissionRefused(owner, str(error)))
            raise
        except TimeoutError:
            pass
        if not stored:
            given_up = True
            if job:
                self._runtime.tell(withdrawn)
            why = self._runtime.journal.stalled or "its disk is too slow"
            raise StorageFull(f"the daemon cannot store the job now: {why}, then submit again")
        return job

    def _quota(self, who: Principal) -> tuple[int | None, str]:
        """Maximum number of active jobs of a user, None for none, and the name of that bound."""
        if who.key is not None and who.key.jobs_max:
            return who.key.jobs_max, "its quota"
        most = self._settings.now.limits.user_jobs_active_max
        return None if who.role is Role.OPERATOR else most, "limits.user_jobs_active_max"

    def _check(self, spec: JobSpec) -> None:
        """Refuse a submission that cannot work. The job's client checks the model itself."""
        if one_line(spec.name) != spec.name:
            raise RequestError(f"a job's name is one line of visible characters; {spec.name!r} is not")
        if stalled := self._runtime.journal.stalled:
            raise StorageFull(f"the daemon takes no jobs now: {stalled}, then submit again")
        if not spec.external:
            backend.check_name(spec.backend)
        kinds = _kinds(self._runtime.state)
        if spec.device not in kinds:
            raise NotFound(f"no device is of the kind {spec.device!r}; there are: {', '.join(kinds)}")
        if spec.target.startswith("{"):  # the backend interprets all other targets
            _check_target(spec.target)
        if why_not := device_types.refusal(spec.target, spec.device, kinds):
            raise RequestError(why_not)
        # Not checked by a pattern of the type, which would run for each repetition of a key in a message.
        if spec.external and kinds[spec.device][0].is_board:
            raise RequestError(
                f"devices of the kind {spec.device!r} are boards, which clients of the daemon alone can reach: submit"
                " the job without a client of your own"
            )
        labels(f"{key}={value}" for key, value in spec.labels.items())
        self._look_for_model(spec)
        self._look_for_earlier(spec)

    def _look_for_model(self, spec: JobSpec) -> None:
        if self._blobs.size(spec.model) is None:
            raise NotFound(f"the model {spec.model} is not uploaded, or not completely; upload it, then submit again")
        if spec.inputs is not None and self._blobs.size(spec.inputs) is None:
            raise NotFound(
                f"the inputs {spec.inputs} are not uploaded, or not completely; upload them, then submit again"
            )

    def _look_for_earlier(self, spec: JobSpec) -> None:
        for number in spec.learn_from:
            job = self._runtime.state.jobs.get(number)
            if job is None:
                raise NotFound(f"there is no job {number} to learn from; see all:  autosched jobs")
            if not job.state.ended:
                raise Refused(
                    f"job {number} has not ended, so what it teaches would change on the way. Wait for it:"
                    f"  autosched wait {number}"
                )
            if job.spec.device != spec.device:
                raise RequestError(
                    f"job {number} measured on {job.spec.device!r}, this one is for {spec.device!r}: what is fast there"
                    " says little here. Learn from a job on the same kind of device, or leave it out"
                )


def for_device(spec: JobSpec, kinds: Mapping[str, tuple[Unit, ...]]) -> JobSpec:
    """The submission with the target of its devices: for boards that of the settings, for GPUs their own.

    A submission may name a kind of boards or GPUs instead of a target.
    """
    named = kinds.get(spec.target, ())
    if named and named[0].accelerator is not None:
        spec = msgspec.structs.replace(spec, device=spec.target, target="auto")
    first = next(iter(kinds.get(spec.device, ())), None)
    match first.accelerator if first is not None else None:
        case RpcServer(target=target) if target and not device_types.target_kind(spec.target):
            return msgspec.structs.replace(spec, target=target)
        case CudaDevice(arch=arch) if spec.target.strip() in ("", "auto", "cuda"):
            return msgspec.structs.replace(spec, target=device_types.gpu_target(arch))
    return spec


def _kinds(state: State) -> dict[str, tuple[Unit, ...]]:
    """Devices of all known hosts, by their kind."""
    here = [queue.pool for queue in state.queues.values()]
    gone = [pool for host in state.hosts.values() if host.left for pool in host.pools]
    kinds: dict[str, tuple[Unit, ...]] = {}
    for pool in (*here, *gone):
        if kind := device_kind(pool.name):
            kinds[kind] = kinds.get(kind, ()) + pool.units
    return kinds


async def _before(sign: asyncio.Event, working: asyncio.Future[None]) -> bool:
    """Whether the work was done before the event was set. Raises the work's errors."""
    both = working, asyncio.ensure_future(sign.wait())
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        for one in both:
            one.cancel()


def _check_target(target: str) -> None:
    try:
        msgspec.json.decode(target, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RequestError(
            f'the target {target[:100]!r} is no JSON object such as {{"kind": "llvm"}} ({error})'
        ) from None
