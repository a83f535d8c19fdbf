import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import postgres

# A machine that is busy with something else is no failure.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

AFTER_ALL_OTHERS = -1_000
"""Priority of an exit handler that runs after multiprocessing has deleted its own folders."""
YIELDS = 1_000
"""Number of times that an idle worker of TVM yields its core before it sleeps. By default it is 300,000: on a busy
machine half an hour, for which the end of the thread waits that the worker belongs to."""
ROOT_CHARS_MAX = 16
"""Maximum length of the temporary folder's path. Sockets lie deep below it, and the system limits their paths to 107
bytes."""


FOLDER = Path(__file__).parent
WAITING, WAITING_END = ("integration", "hostile"), 0.8
"""Folders whose tests wait for processes; their end as a share of all tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the scenario transcripts anew; commit the difference only if you can explain it",
    )
    parser.addoption("--fast", action="store_true", help="without TVM, and without tests that are marked as slow")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Isolates tests from the tester's own settings, and deletes files of killed processes."""
    for name in [name for name in os.environ if name.startswith("AUTOSCHED_")]:
        del os.environ[name]
    os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = str(YIELDS)
    if not hasattr(config, "workerinput"):  # a worker has the folder of the process that started it
        root = tempfile.gettempdir()
        if len(root) > ROOT_CHARS_MAX and os.access("/tmp", os.W_OK):
            root = "/tmp"
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", root)  # of tmp_path
        folder = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="autosched-tests-", dir=root)
        tempfile.tempdir = None
        Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=AFTER_ALL_OTHERS)
    if config.getoption("--fast"):
        sys.modules["tvm"] = None  # type: ignore[assignment]  # as if it were not installed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out slow tests, and orders the others."""
    if config.getoption("--fast"):
        slow = [item for item in items if item.get_closest_marker("tvm") or item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        left_out = set(slow)
        items[:] = [item for item in items if item not in left_out]
    items[:] = mixed(items)


def mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spreads the modules whose tests wait for processes evenly over those whose tests compute, so that workers have
    both until the end. The former are over a little earlier, since one of their tests may take minutes."""
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    waits = {path: any(FOLDER / name in path.parents for name in WAITING) for path in modules}
    count = {kind: sum(len(own) for path, own in modules.items() if waits[path] is kind) for kind in (False, True)}
    before, places = {False: 0, True: 0}, []
    for path, own in modules.items():
        kind = waits[path]
        places.append(((WAITING_END if kind else 1.0) * before[kind] / count[kind], len(places), own))
        before[kind] += len(own)
    return [item for _, _, own in sorted(places, key=lambda place: place[:2]) for item in own]


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest) -> None:
    """Resets a module's RANDOM, so that a test draws the same numbers whatever ran before it."""
    if (source := getattr(request.module, "RANDOM", None)) is not None:
        first = request.module.__dict__.setdefault("_FIRST", source.bit_generator.state)
        source.bit_generator.state = first


@pytest.fixture(scope="session")
def postgresql() -> Iterator[postgres.Server]:
    """A PostgreSQL server for all tests of this process."""
    with postgres.server() as running:
        yield running
