"""The four facts of load-awareness, as users see them."""

from autosched.core.events import StepEnded
from autosched.daemon.jobs.progress import JobProgress
from autosched.daemon.observe.views import load_view
from autosched.model import JobLoad, Outcome
from autosched.protocol import TaskLoadView
from autosched.text import tables
from unit.core.scheduler_driver import DEVICE, HOST, ONE_EACH, Story, complete, wants


def test_running_waiting_and_finished_tasks_are_shown() -> None:
    story = Story(ONE_EACH)
    job = story.running(wants(1), wants(2), complete(3))
    view = load_view(story.state, story.state.jobs[job], JobProgress())
    name = story.state.jobs[job].spec.name
    assert view.tasks == (
        TaskLoadView(1, name, False, False, HOST, (), "build"),
        TaskLoadView(2, name, True, False, (), HOST, "", "build"),
        TaskLoadView(3, name, True, True, (), ()),
    )
    (step,) = story.state.steps.values()
    story.tell(StepEnded(step.id, Outcome.DONE, load=JobLoad(tasks=(wants(1, DEVICE, "profile"),))))
    first = load_view(story.state, story.state.jobs[job], JobProgress()).tasks[0]
    assert (first.stage, first.resources_now) == ("profile", DEVICE)


def test_a_task_without_a_report_since_its_step_needs_nothing() -> None:
    """The network, once it is imported: reports cover its tasks, not itself."""
    story = Story(ONE_EACH)
    job = story.running(wants(0, HOST, "import"))
    (step,) = story.state.steps.values()
    story.tell(StepEnded(step.id, Outcome.DONE, load=JobLoad(tasks=(wants(1),))))
    network, _ = load_view(story.state, story.state.jobs[job], JobProgress()).tasks
    assert (network.stage_done, network.resources_now, network.resources_next) == (True, (), ())


def test_the_table_has_a_column_for_each_fact() -> None:
    rows = [TaskLoadView(1, "conv", False, False, HOST, (), "build"), TaskLoadView(2, "dense", True, True, (), DEVICE)]
    header, running, done = tables.table(tables.LOAD, rows)
    assert header.split("  ")[0].strip() == "TASK"
    assert all(fact in header for fact in ("STAGE DONE", "JOB DONE", "CURRENT RESOURCE", "NEXT RESOURCE"))
    assert "no: build" in running
    assert "device:cpu" in done
