import pytest

from autosched import formatting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (4.12e-4, "412 us"), (0.00481, "4.81 ms"), (0.0149, "14.9 ms"), (0.99951, "1.00 s"), (26.3, "26.3 s"),
     (9.996e-5, "100 us"), (9.999e-4, "1.00 ms"), (3841.2, "3841 s")],
)  # fmt: skip
def test_latencies_have_three_digits_and_the_unit_that_suits(seconds: float | None, text: str) -> None:
    assert formatting.latency(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (0, "0s"), (59.6, "1m00s"), (250, "4m10s"), (6720, "1h52m"), (-3, "0s")]
)
def test_durations_name_the_two_largest_units(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90.0), ("45s", 45.0), ("0.5s", 0.5), ("30m", 1800.0), ("4m10s", 250.0), ("1h30m", 5400.0),
     (" 2d ", 172_800.0)],
)  # fmt: skip
def test_durations_are_read_as_they_are_written(text: str, seconds: float) -> None:
    assert formatting.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-5", "1.5h", "5 minutes", "10s4m", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no duration\. Write seconds or for example 45s, 30m"):
        formatting.seconds(text)


@pytest.mark.parametrize("text", ["11575d", "9" * 400])
def test_a_time_that_no_message_can_carry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is longer than the longest time that counts, 11574d"):
        formatting.seconds(text)


def test_failures_are_told_the_most_frequent_first() -> None:
    assert (
        formatting.reasons({"wrong result": 6, "build timeout": 21, "run error": 0})
        == "21 build timeout, 6 wrong result"
    )


def test_sizes_ratios_and_shares() -> None:
    assert [formatting.size(n) for n in (812, 2_000_000, 5 * 1024**3)] == ["812 B", "1.9 MiB", "5.0 GiB"]
    assert [formatting.ratio(r) for r in (2.408, 24.04, 9.96, 120)] == ["x2.41", "x24.0", "x10.0", "x120"]
    assert [formatting.share(1, 3), formatting.share(1, 0)] == ["33 %", "-"]
    assert [formatting.tiny(0.0), formatting.tiny(4.1e-7)] == ["0", "4.1e-07"]
    assert [formatting.gflops(2e9, 0.5), formatting.gflops(0, 1), formatting.gflops(1e9, None)] == ["4.0", "-", "-"]
    assert [formatting.count(1, "task"), formatting.count(2, "task")] == ["1 task", "2 tasks"]


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ([], ""),
        (["", ""], ""),
        (["job 1 (a.onnx)", ""], "known: 1 of 2 tasks, from job 1 (a.onnx)"),
        (["b", "a", "b"], "known: 3 of 3 tasks, from b 2, a 1"),
        (["a", "b", "c", "d", "a"], "known: 5 of 5 tasks, from a 2 and 3 others"),
    ],
)
def test_sources_of_known_schedules(sources: list[str], said: str) -> None:
    assert formatting.came_from(sources) == said


@pytest.mark.parametrize(
    ("theirs_s", "ours_s", "words"),
    [(2.0, 1.0, "x2.00 faster"), (0.61, 1.0, "x1.64 slower"), (1.0, 1.0, "x1.00 faster")],
)
def test_a_ratio_below_one_never_reads_faster(theirs_s: float, ours_s: float, words: str) -> None:
    assert formatting.speed(theirs_s, ours_s) == words
