import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from autosched import report
from autosched.backend import Baseline, OperatorTime, OperatorTimes
from autosched.model import Identity, IdentityFrom, JobFailure, Purpose, Record
from autosched.network_status import Comparison, MeasuredBuild
from autosched.protocol import Span
from samples import evaluation, job_view, records, spans, timing


class Checker(HTMLParser):
    """Collects tags, and reports one that is closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture
def page() -> str:
    return report.page(report.gather(job_view(), evaluation(), records(), spans()))


def test_the_page_is_well_formed_and_needs_nothing_but_itself(page: str) -> None:
    for name, value in checked(page).attributes:
        assert name not in ("src", "srcset"), value
        assert name != "href", value
    assert "http" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_the_page_says_what_came_of_it(page: str) -> None:
    for wanted in (
        "16.0 ms",
        "x25.0",
        "x3.48",
        "conv2d 64x55x55",
        "build timeout",
        "concat&lt;T&gt;",
        "killed &lt;after&gt;",
    ):
        assert wanted in page


def test_the_page_begins_with_onnx_runtime_and_names_its_forms() -> None:
    forms = (timing("as it is", 0.009), timing("with <fixed> shapes", 0.0046))
    measured = replace(evaluation(), form="with <fixed> shapes", forms=forms)
    page = report.page(report.gather(job_view(), measured, records(), spans()))
    assert page.index("against ONNX Runtime") < page.index("latency</dt>")
    assert "as it is 9.00 ms, with &lt;fixed&gt; shapes 4.60 ms" in page
    assert "SLOWER than ONNX Runtime" in page


def test_the_page_shows_the_time_of_each_operator() -> None:
    rows = (OperatorTime("concat<T>", "by rule", 2, 3e-3), OperatorTime("memory", "virtual machine", 9, 1e-3))
    measured = replace(evaluation(), operators=OperatorTimes(4e-3, rows))
    page = report.page(report.gather(job_view(), measured, records(), spans()))
    assert "<td>concat&lt;T&gt;</td><td>by rule</td>" in page
    assert "explains 4.00 ms of 4.00 ms (100 %)" in page


def test_the_gantt_shows_units_stages_and_the_steps_of_others(page: str) -> None:
    gantt = re.findall(r'<svg[^>]*class="gantt">.*?</svg>', page)[0]
    assert re.findall(r'class="label"[^>]*>([^<]*)<', gantt) == ["host/0", "cpu0"]
    assert gantt.count('class="s-profile"') == 2
    assert gantt.count('class="s-profile bad"') == 1
    assert gantt.count('class="s-other"') == 1
    assert "job 8" in gantt


def test_the_page_shows_the_best_over_time_of_each_task_and_of_the_network(page: str) -> None:
    sparks = re.findall(r'class="spark" role="img" aria-label="([^"]*)"', page)
    assert sparks == ["from 1.00 ms to 1.00 ms", "from 1.20 ms to 400 us"], "the task with the largest share first"
    assert 'aria-label="Estimated latency of the network over time: from' in page


def test_failures_are_shown_by_reason_with_their_messages(page: str) -> None:
    group = re.findall(r"<details><summary>(.*?)</summary>(.*?)</details>", page)
    assert group == [
        ("2 build timeout", "<pre>killed &lt;after&gt; 15 s, task 1</pre><pre>killed &lt;after&gt; 15 s, task 2</pre>")
    ]


def test_bars_stand_where_their_time_is(page: str) -> None:
    """100 s on 910 px: the import takes the first 10 s."""
    bar = re.search(r'class="s-import" x="([\d.]+)" y="\d+" width="([\d.]+)"', page)
    assert bar is not None
    assert (float(bar[1]), float(bar[2])) == (90.0, 91.0)


def test_colours_have_contrast_enough_in_light_and_dark(page: str) -> None:
    """WCAG AA: 4.5 for text on page and cards, 3 for bars on their lane."""
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in page.split("@media (prefers", 2)[:2]
    )
    for theme in (light, {**light, **dark}):
        for text in ("text", "dim", "accent", "good", "bad"):
            for back in ("back", "card"):
                assert contrast(theme[text], theme[back]) >= 4.5, (text, back)
        for stage in ("import", "baseline", "select", "build", "profile", "update", "compile", "evaluate", "other"):
            assert contrast(theme[stage], theme["lane"]) >= 3, stage


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_job_that_failed_before_anything_was_known_has_a_page_too() -> None:
    failed = replace(
        job_view(), state="failed", failure=JobFailure("model_rejected", "LSTM is <not> supported"), tasks=(),
        skipped=(), trials=0, failed=0, failures={}, estimate_s=None, spec=None,
    )  # fmt: skip
    page = report.page(report.gather(failed, None, [], []))
    checked(page)
    assert "LSTM is &lt;not&gt; supported" in page


def test_a_job_whose_steps_shared_a_unit_says_so_on_its_page() -> None:
    job = replace(job_view(), state="done", shared_units=True)
    text = report.page(report.gather(job, evaluation(), records(), spans()))
    assert "its latencies are disturbed" in text


def test_a_job_of_many_steps_stays_small() -> None:
    """A week of short steps is drawn in as many bars as there are pixels, not steps."""
    many = [
        replace(spans()[2], step=i, started_at=1000 + i * 1e-3, ended_at=1000 + (i + 0.9) * 1e-3)
        for i in range(100_000)
    ]
    drawn = report.page(report.gather(job_view(), None, [], many))
    assert drawn.count("<rect") < 2_000


def test_it_says_what_the_measurements_are_worth() -> None:
    held = [
        Record(task=1, number=10 + i, candidate=candidate, latency_s=(1e-3,), purpose=purpose)
        for i, (candidate, purpose) in enumerate([(b"c2", Purpose.FINAL), (b"", Purpose.DEFAULT)])
    ]
    view = replace(job_view(), disturbed_records=3, records=9)
    page = report.page(report.gather(view, None, [*records(), *held], spans(), {"cpu0": "drifting <fast>"}))
    checked(page)
    for words in (
        "3 of 9 measurements were disturbed",
        "cpu0: drifting &lt;fast&gt;",
        "the search&#x27;s first",
        "Default",
    ):
        assert words in page or words.replace("&#x27;", "'") in page
    assert "devices were not watched" in report.page(report.gather(job_view(), None, records(), spans()))


def test_a_task_that_lost_to_another_is_said_to_be_unused() -> None:
    tasks = tuple(replace(task, weight=2, groups={"g": 2}) for task in job_view().tasks)
    text = report.page(report.gather(replace(job_view(), tasks=tasks), None, records(), spans()))
    assert (text.count(">unused<"), ">unused<" in report.page(report.gather(job_view(), None, records(), []))) == (
        1,
        False,
    )


def test_the_curve_knows_what_is_to_be_beaten_and_each_measured_build() -> None:
    baseline = Baseline("LiteRT", "2.1", "as it is", 12e-3, 11e-3, 13e-3)
    view = replace(
        job_view(),
        comparison=Comparison(baseline),
        builds=(MeasuredBuild(8, 41e-3), MeasuredBuild(9, 30e-3, disturbed=True)),
    )
    steps = [Span(step, 7, 0, "evaluate", ("cpu0",), 1010.0, 1040.0, 1041.0 + step, "done") for step in (8, 9)]
    page = report.page(report.gather(view, None, records(), [*spans(), *steps]))
    checked(page)
    curve = page[page.index('<h2 id="curve">') : page.index('<h2 id="tasks">')]
    assert '<line class="rival"' in curve and ">LiteRT 12.0 ms</text>" in curve
    assert "a build measured after 49s: 41.0 ms</title>" in curve
    assert "a build measured after 50s: 30.0 ms, other load ran</title>" in curve
    top, rival = (float(re.search(f'class="{kind}"[^>]* c?y1?="([0-9.]+)"', curve)[1]) for kind in ("build", "rival"))  # type: ignore[index]
    assert 0.0 < top < rival, "the slower one stands higher, and both in the drawing"
    assert "Dashed: LiteRT." in curve


def test_a_build_alone_makes_a_curve() -> None:
    view = replace(job_view(), builds=(MeasuredBuild(8, 41e-3),))
    step = Span(8, 7, 0, "evaluate", ("cpu0",), 1010.0, 1040.0, 1041.0, "done")
    page = report.page(report.gather(view, None, [], [*spans(), step]))
    assert '<circle class="build"' in page


def test_the_page_says_under_which_circumstances_was_measured() -> None:
    first = Identity("znver4", "AMD EPYC", "tvm 0.26", "autotvm 0.1.0")
    known = (IdentityFrom(0, first), IdentityFrom(64, replace(first, compiler="tvm <0.27>")))
    page = report.page(report.gather(replace(job_view(), identities=known), None, records(), spans()))
    assert "AMD EPYC, znver4, tvm 0.26, autotvm 0.1.0" in page
    assert "measured from record 64 on" in page and "tvm &lt;0.27&gt;" in page
