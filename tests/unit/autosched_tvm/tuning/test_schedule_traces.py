"""Schedule traces as data."""

import json

from autosched_tvm.tuning import schedule_traces

INSTRUCTIONS = [
    ["GetSBlock", [], ["matmul", "main"], ["b0"]],
    ["GetLoops", ["b0"], [], ["l1"]],
    ["SamplePerfectTile", ["l1"], [2, 64], ["v2", "v3"]],
    ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v4"]],
]
AFTERWARDS = [["EnterPostproc", [], [], []], ["Unannotate", ["b0"], ["x"], []]]


def candidate(decisions: object, *memo: object, postproc: bool = True) -> bytes:
    return json.dumps([INSTRUCTIONS + (AFTERWARDS if postproc else []), decisions, *memo]).encode()


def test_a_candidate_is_read() -> None:
    trace = schedule_traces.read(candidate([[2, [4, 8]], [3, 1]], {"generation": 3}))
    assert trace is not None
    assert trace.decisions == ((4, 8), 1)
    assert trace.sketch.places == (2, 3)
    assert trace.memo == {"generation": 3}


def test_postprocessing_is_no_part_of_a_sketch() -> None:
    with_it = schedule_traces.read(candidate([[2, [4, 8]], [3, 1]]))
    without = schedule_traces.read(candidate([[2, [2, 16]], [3, 0]], postproc=False))
    assert with_it is not None
    assert without is not None
    assert with_it.sketch.text == without.sketch.text
    assert with_it.sketch == without.sketch
    assert with_it.memo == {}


def test_instructions_without_decisions_are_left_out() -> None:
    sketch = schedule_traces.Sketch.of(INSTRUCTIONS)
    assert sketch.with_decisions([None, 1]) == [INSTRUCTIONS, [[3, 1]]]
    assert sketch.with_decisions([(4, 8), None]) == [INSTRUCTIONS, [[2, (4, 8)]]]


def test_a_template_without_decisions_is_a_trace_too() -> None:
    trace = schedule_traces.read(json.dumps([INSTRUCTIONS[:2], [], {"config": 7}]).encode())
    assert trace is not None
    assert trace.decisions == ()


def test_a_text_that_is_no_trace_is_rejected() -> None:
    for text in (b"", b"{}", b"[]", b"[1, 2]", b"[[],[[1]]]", b"\xff", candidate([[2, [4, 8]]]), b"[[[]], []]"):
        assert schedule_traces.read(text) is None


def test_numbers_of_other_kinds_are_written() -> None:
    class Number:
        value = 5

    assert schedule_traces.write([[["Split", [], [Number()], []]], []]) == b'[[["Split",[],[5],[]]],[]]'
    assert schedule_traces.write([[], []], {"a": 1}) == b'[[],[],{"a":1}]'
