from msgspec.structs import replace

from autosched.cli.policy import facts, serve_words
from autosched.model import Goal
from autosched.protocol import Calibration, PolicyView
from autosched.text.tables import facts as job_facts
from autosched.text.tables import reason
from samples import job_view

VIEW = PolicyView(
    policy="predictive", goal="balanced", rule="mwkr", installed=("interleaved", "predictive"),
    configured="predictive", replaced="", calibration=Calibration(412, 82.1, 0.914, 1.183),
)  # fmt: skip


def test_policy_shows_rule_and_estimates() -> None:
    assert list(facts(VIEW)) == [
        " policy predictive, goal balanced, follows the rule mwkr",
        " estimates: half of the recent steps within a factor of 1.18, of 412 in all",
        " 91 % of the steps took no longer than foreseen for 90 %",
        " installed: interleaved, predictive",
    ]


def test_policy_shows_deviations_from_the_settings_with_the_reason() -> None:
    lines = list(facts(replace(VIEW, policy="interleaved", rule="", replaced="it raised", calibration=None)))
    assert lines[0] == " policy interleaved, goal balanced"
    assert " estimates: none has been put to the test yet" in lines
    assert " at the next start: predictive, as configured" in lines
    assert lines[-1] == " ! it raised"


def test_a_private_daemon_gets_the_policy_of_the_command() -> None:
    assert serve_words(None, None) == []
    assert serve_words("lifo", Goal.LATENCY) == ["--policy", "lifo", "--goal", "latency"]


def test_a_job_shows_its_requested_settings() -> None:
    view = replace(job_view(), priority=7, deadline_at=2800.0)  # submitted at 1000 s, seen at 1100 s
    assert " priority 7, wanted within 30m00s: 28m20s left" in job_facts(view)
    assert reason(view).endswith("; priority 7, wanted within 30m00s: 28m20s left")
    assert " wanted within 1m00s: 40s late" in job_facts(replace(view, priority=0, deadline_at=1060.0))
    met, missed = (replace(view, state="done", ended_at=1250.0, deadline_at=at) for at in (1300.0, 1200.0))
    assert " priority 7, wanted within 5m00s: met" in job_facts(met)
    assert " priority 7, wanted within 3m20s: 50s late" in job_facts(missed)
    assert not any("wanted" in line for line in job_facts(job_view()))


def test_a_job_whose_steps_shared_a_unit_is_labelled() -> None:
    view = replace(job_view(), shared_units=True)
    assert any("its latencies are disturbed" in line for line in job_facts(view))
    assert reason(view).startswith("DISTURBED; ")
