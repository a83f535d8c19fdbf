"""Pairs of jobs that differ in one parameter, and the page of results."""

import math
import re
from pathlib import Path

import pytest

from autosched.experiments.comparison import LARGE_T, T_975, compare
from autosched.experiments.definition import Definition, DefinitionError, parse
from autosched.experiments.page import page
from autosched.experiments.rows import Row


def row(model: str, policy: str, seed: int, latency_s: float, **fields: object) -> Row:
    values = {"model": model, "policy": policy, "seed": seed}
    known = {"low_s": 0.99 * latency_s, "high_s": 1.01 * latency_s, "took_s": 10.0, **fields}
    name = f"{model}{policy}{seed}"
    return Row(combination=name, values=values, job=1, state="done", latency_s=latency_s, **known)  # type: ignore[arg-type]


PAIRS = [
    *(row("a", "old", seed, 2.0 + seed) for seed in range(3)),
    *(row("a", "new", seed, (2.0 + seed) * ratio) for seed, ratio in enumerate((0.49, 0.5, 0.51))),
    *(row("b", "old", seed, 1.0) for seed in range(3)),
    *(row("b", "new", seed, ratio) for seed, ratio in enumerate((0.8, 1.0, 1.2))),
]


def test_pairs_that_differ_in_nothing_else() -> None:
    a, b, whole = compare(PAIRS, "policy", figures=["latency_s"], by=["model"])
    assert (a.group, a.value, a.against, a.pairs, a.verdict) == ({"model": "a"}, "new", "old", 3, "better")
    logs = [math.log(ratio) for ratio in (0.49, 0.5, 0.51)]
    mean = sum(logs) / 3
    half = T_975[1] * math.sqrt(sum((one - mean) ** 2 for one in logs) / 2) / math.sqrt(3)
    assert (a.ratio, a.low, a.high) == pytest.approx((math.exp(mean), math.exp(mean - half), math.exp(mean + half)))
    assert (b.pairs, b.verdict) == (3, "cannot tell"), "the interval holds 1"
    assert (whole.group, whole.pairs) == ({}, 6)


def test_the_reference_is_chosen_or_the_first() -> None:
    (back,) = compare(PAIRS, "policy", figures=["latency_s"], against="new")
    (there,) = compare(PAIRS, "policy", figures=["latency_s"])
    assert (back.value, back.against) == ("old", "new")
    assert back.ratio == pytest.approx(1 / there.ratio)


def test_one_pair_of_latencies_has_the_interval_of_its_medians() -> None:
    rows = [row("a", "old", 0, 2.0), row("a", "new", 0, 1.0)]
    (one,) = compare(rows, "policy", figures=["latency_s"])
    assert (one.low, one.high, one.verdict) == pytest.approx((0.99 / 2.02, 1.01 / 1.98, one.verdict))
    assert one.verdict == "better"
    (took,) = compare(rows, "policy", figures=["took_s"])
    assert (took.low, took.pairs, took.verdict) == (None, 1, "cannot tell")


def test_more_is_better_where_it_is() -> None:
    rows = [
        row("a", policy, seed, 1.0, engine_s=engine)
        for policy, engine in (("old", 1.0), ("new", 2.0))
        for seed in (0, 1)
    ]
    (one,) = compare(rows, "policy", figures=["speedup"])
    assert (one.ratio, one.verdict) == (2.0, "better")


def test_jobs_without_a_figure_or_a_partner_do_not_count() -> None:
    rows = [
        row("a", "old", 0, 1.0),
        row("a", "new", 1, 1.0),
        Row(combination="x", values={"policy": "new"}, job=1, state="failed"),
    ]
    assert compare(rows, "policy", figures=["latency_s"]) == []
    assert compare([], "policy", figures=["latency_s"]) == []


def test_a_batch_counts_once() -> None:
    def batch(policy: str, seed: int, ends: float) -> list[Row]:
        return [
            row(model, policy, seed, 1.0, batch=f"{policy} {seed}", submitted_at=100.0, ended_at=100.0 + part * ends)
            for model, part in (("a", 0.5), ("b", 1.0))
        ]

    rows = [one for seed in range(2) for one in (*batch("old", seed, 60.0), *batch("new", seed, 30.0))]
    (one,) = compare(rows, "policy", figures=["batch_s"], together=["model"])
    assert (one.ratio, one.pairs, one.verdict) == (pytest.approx(0.5), 2, "better")


def test_what_goes_in_step_with_the_compared_parameter_makes_no_difference(tmp_path: Path) -> None:
    rows = [
        Row(
            combination=f"{model}{fresh}",
            values={"model": model, "fresh": fresh, "settings": lab},
            job=1,
            state="done",
            latency_s=s,
        )
        for model in ("a", "b")
        for fresh, lab, s in ((True, "alone.toml", 2.0), (False, "taught.toml", 1.0))
    ]
    assert compare(rows, "fresh", figures=["latency_s"]) == []
    (one,) = compare(rows, "fresh", figures=["latency_s"], along=["settings"])
    assert (one.pairs, one.ratio) == (2, pytest.approx(0.5))
    (tmp_path / "a").write_bytes(b"model")
    lists = '[parameters]\nmodel = ["a", "a"]\nlabel.x = [1, 2]\nseed = [0, 1]\n'
    made = parse(f'zip = [["model", "label.x"]]\n{lists}', tmp_path / "x.toml")
    assert (made.along("model"), made.along("label.x"), made.along("seed")) == (("label.x",), ("model",), ())


def test_a_default_is_a_value() -> None:
    rows = [
        Row(combination="1", values={"model": "a"}, job=1, state="done", latency_s=2.0),
        Row(combination="2", values={"model": "a", "fresh": False}, job=2, state="done", latency_s=1.0),
        Row(combination="3", values={"model": "a", "layout": "nhwc"}, job=3, state="done", latency_s=3.0),
    ]
    (one,) = compare(rows[:2], "fresh", figures=["latency_s"])
    assert (one.value, one.against, one.ratio) == (False, True, 0.5)
    (other,) = compare([rows[0], rows[2]], "layout", figures=["latency_s"])
    assert (other.value, other.against) == ("nhwc", None)


def test_the_quantiles_fall_to_that_of_many() -> None:
    assert sorted(T_975, reverse=True) == list(T_975)
    assert T_975[-1] > LARGE_T


def definition(folder: Path, head: str) -> Definition:
    for name in "ab":
        (folder / name).write_bytes(b"model")
    lists = '[parameters]\nmodel = ["a", "b"]\nseed = [0, 1, 2]\npolicy = ["stagewise", "sequential"]\n'
    return parse(f"{head}\n{lists}[daemon]\nown = true\n", folder / "x.toml")


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ('by = "model"', "it belongs to a comparison, and `compare` does not name a parameter"),
        ('compare = "polcy"', "does not name 'polcy'; did you mean 'policy'"),
        ('compare = "policy"\nby = "lane"', "does not name 'lane'"),
        ('compare = "policy"\nby = 3', "by takes a list of names"),
        ('compare = "policy"\nagainst = "x"', "'x' is no value of policy; there are: 'stagewise', 'sequential'"),
        ('compare = "policy"\nfigures = ["latncy_s"]', "'latncy_s' is no column of numbers; did you mean 'latency_s'"),
        ('compare = "policy"\nfigures = "latency_s"', "figures takes a list of columns"),
    ],
)
def test_wrong_comparisons_are_told(head: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=what):
        definition(tmp_path, head)


def test_what_a_file_compares(tmp_path: Path) -> None:
    found = definition(tmp_path, 'compare = "policy"\nby = "network"\ntogether = ["model"]')
    assert (found.compare, found.by, found.figures) == ("policy", ("model",), ("batch_s", "latency_s"))
    assert definition(tmp_path, 'compare = "policy"').figures == ("took_s", "latency_s")


def test_the_page_has_comparisons_jobs_and_where_they_come_from(tmp_path: Path) -> None:
    made = definition(tmp_path, 'compare = "policy"\nby = "network"\nabout = "Which <policy>?"')
    failed = Row(combination="f", values={"model": "b"}, job=9, state="failed", failure="no <operator>")
    rows = [
        row(
            one.values["model"],
            {"old": "stagewise", "new": "sequential"}[str(one.values["policy"])],
            int(one.values["seed"]),
            one.latency_s or 0.0,
        )
        for one in PAIRS
    ]  # type: ignore[arg-type]
    text = page(made, [*rows, failed], 20, ["model", "policy", "seed"])
    assert "Which &lt;policy&gt;?" in text
    assert "13 of 20 jobs, 7 have not ended" in text
    assert "job 9: no &lt;operator&gt;" in text
    assert 'href="jobs/astagewise0/report.html"' in text
    assert len(re.findall("<svg", text)) == 2, "one for each figure"
    assert "cannot tell" in text
    assert "better" in text
    assert page(made, [], 20, ["model"]).count("<section") == 2
