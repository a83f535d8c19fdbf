"""What the page says of verdicts."""

import verdicts_page


def test_wrong_verdicts_are_counted_and_named() -> None:
    right = {"verdicts": 5, "rejected": 0, "largest": 0.02, "masked": ["task 3: operands are swapped"]}
    broken = [
        {"what": "task 1: a loop ends one step early", "accepted": False, "error_of_tolerance": 40.0},
        {"what": "task 2: an index is off by one", "accepted": True, "error_of_tolerance": 0.5},
    ]
    told = {
        "machine": "one", "a": right | {"broken": broken}, "b": right | {"rejected": 1, "broken": []},
        "c": {"refused": "operator X"},
    }  # fmt: skip
    text = " ".join(verdicts_page.section(told))
    assert "2 networks, 10 verdicts on right builds: 1 rejected" in text
    assert "2 broken builds: 1 accepted (a, task 2: an index is off by one)" in text
    assert "was 40 times its tolerance. Outputs of 2 more" in text
