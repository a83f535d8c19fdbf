"""Transcripts: events for the scheduler, with its actions and answers.

A transcript is a text that shows why the scheduler acted as it did. A test runs it again and compares.

    # Purpose of the transcript.
    policy interleaved
    > 0 ResourcesDeclared host=host/0 device:cpu=cpu0
    > 0 JobSubmitted 1
    < StartClient 1
    > 1 ClientAttached 1 | 1 build@host | 2 profile@device:cpu
    < StartStep 1: job 1 task 1 build on host/0, until 601
    ? explain 1
    = task 1 runs on host/0: build for 0s, killed in 10m00s at the latest
    ? deadline
    = 601

Lines that begin with `>` are events, with `?` questions; `<` are the actions and `=` the answers, which `play` writes.
An event is its time, its name, its job or step, then words, then the load of each task after a `|`:
`TASK STAGE@POOL+POOL [expected=S] [timeout=S]`, `TASK idle`, `TASK busy`, `TASK complete`, or for the whole job
`job complete`, `job failed CODE MESSAGE` and `rounds LEFT`. A submission takes `external`, `priority=N`, `deadline=S`;
`ResourcesDeclared ... kept=JOB,JOB` names jobs whose clients may have survived a daemon, `ClientCutOff JOB REASON` a
client that cannot be reached, `ClientAttached JOB holds=STEP,STEP` the steps of a client that is back.
`UnitDrained UNIT BY [deadline=S] REASON`, `UnitReturned UNIT BY`, `Paused BY [REASON]`,
`JobAltered JOB BY [priority=N] [deadline=S] [held=WHY]`,
`HostJoined HOST POOL=UNIT,UNIT ... [software=DIGEST]`, `HostCutOff HOST [lost_at=S] REASON`, `HostLeft HOST REASON`,
`HostForgotten HOST`, `ClientPlaced JOB [HOST]` (without HOST the core chooses),
`StagesFreed JOB STAGE ... [divisible=STAGE,STAGE]`,
`PolicyChosen NAME GOAL BY [REASON]`, `RuleChosen [RULE]`, `JobPruned JOB` and
`HistoryRecalled JOB TASK:STAGE:MEAN_S:COUNT ...` are events.
Every event and action goes through the journal's codec on its way.
"""

from collections.abc import Iterator, Sequence

import msgspec

from autosched.core.actions import (
    Action,
    EndJob,
    LaunchClient,
    ReplacePolicy,
    RevokeStep,
    StartClient,
    StartStep,
    StopClient,
)
from autosched.core.events import (
    ClientAttached,
    ClientCutOff,
    ClientLost,
    ClientPlaced,
    DeadlineReached,
    Event,
    HistoryRecalled,
    HostCutOff,
    HostForgotten,
    HostJoined,
    HostLeft,
    JobAltered,
    JobCancelRequested,
    JobPruned,
    JobSubmitted,
    Paused,
    PolicyChosen,
    ResourcesDeclared,
    RuleChosen,
    StagesFreed,
    StepEnded,
    UnitDrained,
    UnitReturned,
)
from autosched.core.explain import explain_job
from autosched.core.policies.policy import POLICIES
from autosched.core.scheduler import Scheduler
from autosched.model import (
    OWN_HOST,
    Goal,
    JobFailure,
    JobLoad,
    JobSpec,
    Outcome,
    Pool,
    StageHistory,
    TaskLoad,
    Unit,
    lent_by,
)

_EVENTS = msgspec.msgpack.Decoder(Event)
_ACTIONS = msgspec.msgpack.Decoder(Action)


def through_codec_event(event: Event) -> Event:
    """Returns the event after the journal's codec."""
    back: Event = _EVENTS.decode(msgspec.msgpack.encode(event))
    assert back == event, f"{event} became {back}"
    return back


def through_codec_action(action: Action) -> Action:
    """Returns the action after the journal's codec."""
    back: Action = _ACTIONS.decode(msgspec.msgpack.encode(action))
    assert back == action, f"{action} became {back}"
    return back


class Script:
    """Plays a transcript on the production core, and checks all invariants after each event."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()

    def play(self, text: str) -> str:
        """Returns the transcript with the scheduler's present answers."""
        return "".join(f"{line}\n" for source in text.splitlines() for line in self._line(source))

    def _line(self, source: str) -> Iterator[str]:
        match source[:2]:
            case "< " | "= ":
                return  # an answer of an earlier run
            case "> ":
                yield source
                at, words, says = self._parse(source[2:])
                self.decision = self.scheduler.handle(at, through_codec_event(_event(words, says)))
                for action in self.decision.actions:
                    yield f"< {_written(through_codec_action(action))}"
                self.scheduler.state.check_all(exclusive=not self.scheduler.state.shares_units)
            case "? ":
                yield source
                for answer in self._answers(source[2:].split()):
                    yield f"= {answer}"
            case _:
                if source.startswith("policy "):
                    self.scheduler = Scheduler(POLICIES[source.removeprefix("policy ")])
                elif source and not source.startswith("#"):
                    raise ValueError(f"not a line of a transcript: {source!r}")
                yield source

    @staticmethod
    def _parse(text: str) -> tuple[float, list[str], list[list[str]]]:
        head, *says = (part.split() for part in text.split("|"))
        return float(head[0]), head[1:], says

    def _answers(self, question: Sequence[str]) -> list[str]:
        match question:
            case ["explain", job]:
                return explain_job(self.scheduler.state, int(job), self.scheduler.policy.name)
            case ["explain", job, "at", now]:
                return explain_job(self.scheduler.state, int(job), self.scheduler.policy.name, float(now))
            case ["deadline"]:
                return [str(self.decision.wake_at)]
            case _:
                raise ValueError(f"not a question: {' '.join(question)!r}")


def _event(words: Sequence[str], says: Sequence[Sequence[str]]) -> Event:
    match words:
        case ["ResourcesDeclared", *declared]:
            settings = dict(word.split("=", 1) for word in declared)
            step_timeout_s = float(settings.pop("step_timeout_s", "600"))
            attach_timeout_s = float(settings.pop("attach_timeout_s", "60"))
            kept = _ids(settings.pop("kept", ""))
            pools = _pools([f"{pool}={units}" for pool, units in settings.items()])
            return ResourcesDeclared(pools, step_timeout_s, attach_timeout_s, kept=kept)
        case ["JobSubmitted", job, *kind]:
            settings = dict(word.split("=", 1) for word in kind if "=" in word)
            spec = JobSpec(
                name=f"job {job}",
                model="0" * 64,
                external="external" in kind,
                priority=int(settings.get("priority", "0")),
                deadline_s=float(settings["deadline"]) if "deadline" in settings else None,
                device=settings.get("device", "cpu"),
            )
            return JobSubmitted(int(job), spec)
        case ["ClientAttached", job]:
            return ClientAttached(int(job), _load(says))
        case ["ClientAttached", job, held] if held.startswith("holds="):
            return ClientAttached(int(job), _load(says), _ids(held.removeprefix("holds=")))
        case ["JobPruned", job]:
            return JobPruned(int(job))
        case ["JobAltered", job, by, *kind]:
            settings = dict(word.split("=", 1) for word in kind)
            within_s = float(settings["deadline"]) if "deadline" in settings else None
            return JobAltered(int(job), by, int(settings.get("priority", "0")), within_s, settings.get("held", ""))
        case ["Paused", by, *reason]:
            return Paused(by, " ".join(reason))
        case ["UnitDrained", unit, by, within, *reason] if within.startswith("deadline="):
            return UnitDrained(unit, " ".join(reason), by, float(within.removeprefix("deadline=")))
        case ["UnitDrained", unit, by, *reason]:
            return UnitDrained(unit, " ".join(reason), by)
        case ["UnitReturned", unit, by]:
            return UnitReturned(unit, by)
        case ["ClientCutOff", job, *reason]:
            return ClientCutOff(int(job), " ".join(reason))
        case ["ClientLost", job, "progressed", *reason]:
            return ClientLost(int(job), " ".join(reason), progressed=True)
        case ["ClientLost", job, *reason]:
            return ClientLost(int(job), " ".join(reason))
        case ["StepEnded", step, outcome, *error]:
            return StepEnded(int(step), Outcome(outcome), _load(says) if says else None, " ".join(error))
        case ["JobCancelRequested", job, by]:
            return JobCancelRequested(int(job), by)
        case ["PolicyChosen", policy, goal, by, *reason]:
            return PolicyChosen(policy, Goal(goal), by, " ".join(reason))
        case ["RuleChosen", *rule]:
            return RuleChosen(" ".join(rule))
        case ["HistoryRecalled", job, *stages]:
            parts = [stage.split(":") for stage in stages]
            return HistoryRecalled(int(job), tuple(StageHistory(int(t), s, float(m), int(n)) for t, s, m, n in parts))
        case ["HostJoined", host, *lent, versions] if versions.startswith("software="):
            return HostJoined(host, _pools(lent, host), software=versions.removeprefix("software="))
        case ["HostJoined", host, *lent]:
            return HostJoined(host, _pools(lent, host))
        case ["HostCutOff", host, lost_at, *reason] if lost_at.startswith("lost_at="):
            return HostCutOff(host, " ".join(reason), float(lost_at.removeprefix("lost_at=")))
        case ["HostCutOff", host, *reason]:
            return HostCutOff(host, " ".join(reason))
        case ["HostLeft", host, *reason]:
            return HostLeft(host, " ".join(reason))
        case ["HostForgotten", host]:
            return HostForgotten(host)
        case ["ClientPlaced", job, *host]:
            return ClientPlaced(int(job), "".join(host) or None)
        case ["StagesFreed", job, *stages]:
            shared = [word.removeprefix("divisible=") for word in stages if word.startswith("divisible=")]
            moved = tuple(word for word in stages if not word.startswith("divisible="))
            return StagesFreed(int(job), moved, tuple(shared[0].split(",")) if shared else ())
        case ["DeadlineReached"]:
            return DeadlineReached()
        case _:
            raise ValueError(f"not an event: {' '.join(words)!r}")


def _pools(lent: Sequence[str], host: str = OWN_HOST) -> tuple[Pool, ...]:
    declared = (word.split("=", 1) for word in lent)
    return lent_by(host, (Pool(pool, tuple(map(Unit, units.split(",")))) for pool, units in declared))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def _load(says: Sequence[Sequence[str]]) -> JobLoad:
    tasks: list[TaskLoad] = []
    complete, failure, rounds_left = False, None, None
    for words in says:
        match words:
            case []:
                pass  # a lone "|": a client without a load
            case ["job", "complete"]:
                complete = True
            case ["rounds", left]:
                rounds_left = float(left)
            case ["job", "failed", code, *message]:
                failure = JobFailure(code, " ".join(message))
            case [task, "complete"]:
                tasks.append(TaskLoad(task=int(task), complete=True))
            case [task, "idle"]:
                tasks.append(TaskLoad(task=int(task)))
            case [task, "busy"]:
                tasks.append(TaskLoad(task=int(task), stage_done=False))
            case [task, wish, *settings]:
                stage, _, pools = wish.partition("@")
                numbers = {k: float(v) for k, _, v in (word.partition("=") for word in settings)}
                tasks.append(
                    TaskLoad(
                        task=int(task),
                        stage_next=stage,
                        resources_next=tuple(pools.split("+")),
                        expected_s=numbers.get("expected"),
                        timeout_s=numbers.get("timeout"),
                    )
                )
            case _:
                raise ValueError(f"not a load: {' '.join(words)!r}")
    return JobLoad(tasks=tuple(tasks), complete=complete, failure=failure, rounds_left=rounds_left)


def _written(action: Action) -> str:
    match action:
        case StartClient(job=job):
            return f"StartClient {job}"
        case LaunchClient(job=job, host=host):
            return f"LaunchClient {job} {host}".rstrip()
        case StopClient(job=job, reason=reason):
            return f"StopClient {job}: {reason}"
        case StartStep(step=step):
            where = ", ".join(step.units)
            return (
                f"StartStep {step.id}: job {step.job} task {step.task} {step.stage} on {where},"
                f" until {step.deadline_at:g}"
            )
        case RevokeStep(step=step_id, job=job, reason=reason):
            return f"RevokeStep {step_id}: job {job}: {reason}"
        case EndJob(job=job, state=state, failure=failure):
            why = f": {failure.code}: {failure.message}" if failure is not None else ""
            return f"EndJob {job}: {state.value}{why}"
        case ReplacePolicy(policy=policy, instead=instead, reason=reason):
            return f"ReplacePolicy {policy} by {instead}: {reason}"
