"""The check of a record store finds lost, repeated and invented records."""

import pytest

from autosched.model import Record
from autosched.recordstore.keys import candidate_digest
from chaos.store_check import Row, violations

RECORDS = {
    job: [Record(task=1, number=n, candidate=b"%d" % n, latency_s=(n + 1.0,)) for n in range(3)] for job in (1, 2)
}
ROWS = [
    (job, one.number, candidate_digest(one.candidate), one.latency_s) for job, own in RECORDS.items() for one in own
]


def test_a_store_with_each_record_once_is_sound() -> None:
    assert violations(RECORDS, ROWS) == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ROWS[1:], "record 0 of job 1 is lost"),
        ([*ROWS, ROWS[4]], "record 1 of job 2 is in the store 2 times"),
        ([*ROWS, (3, 0, b"x", ())], "record 0 of job 3 is in the store 1 times, in the daemon's database 0"),
        ([(*ROWS[0][:3], (9.0,)), *ROWS[1:]], "record 0 of job 1 is lost"),
    ],
    ids=["lost", "doubled", "made up", "other samples"],
)
def test_faults_are_reported(rows: list[Row], said: str) -> None:
    assert said in "; ".join(violations(RECORDS, rows))
