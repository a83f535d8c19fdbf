"""A job in a few lines."""

from msgspec.structs import replace

from autosched.text.tables import facts
from samples import job_view


def test_the_memory_of_a_client_is_shown_while_it_runs() -> None:
    view = replace(job_view(), client_bytes=3 * 1024**2)
    assert any(line.endswith("; its client holds 3.0 MiB") for line in facts(view))
    assert not any("its client holds" in line for line in facts(job_view()))
    assert not any("its client holds" in line for line in facts(replace(view, state="done")))
