"""`autosched plugin`: a new package works, the list shows errors, checks explain, one stage runs alone."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autosched.backend import GROUP
from autosched.cli.command_table import run
from autosched.conformance import scaffold
from autosched.simple.child_process import DEBUG
from packages import BROKEN, install

pytestmark = pytest.mark.slow

Said = tuple[int, str, str]
GOOD = (Path(__file__).parent / "broken.py").read_text()
BUGS = '''
from autosched.simple import SimpleBackend, Space
from their_good import Good, Session, Tuner, of

def wild(method, work):
    """A backend in which one method of the search does something else."""
    return lambda: type("Wild", (Good,), {"session": of(type("T", (Tuner,), {method: lambda *_: work()}))})()

def leaves():
    raise SystemExit(3)

raises = wild("update", lambda: 1 / 0)
ends = wild("profile", leaves)
none = wild("profile", lambda: None)
fickle = wild("default", lambda: object.nothing)

class short(SimpleBackend):
    api = (2, 0)

    def spaces(self, job):
        return [Space(name="a", knobs={"n": (1, 2)}, default={"n": 1})]

    def build(self, job, space, choice, folder):
        pass

    def measure(self, job, space, choice, folder):
        raise KeyError("oops")

class shut(Good):
    def open(self, *_):
        return [][0]

class empty(Good):
    class session(Session):
        def import_network(self, lease):
            return None
'''
OLD = "from their_good import Good\nclass Old(Good):\n    api = (2, 99)\nclass Silent(Good):\n    api = None\n"
MODULES = {
    "their_good": GOOD,
    "their_old": OLD,
    "their_unimportable": BROKEN,
    "their_crash": "import os\nos.kill(os.getpid(), 11)\n",
    "their_bugs": BUGS,
}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs a command in an empty folder, with another author's package installed."""
    theirs = install(
        tmp_path / "theirs", GROUP, MODULES, good="their_good:Good", old="their_old:Old", silent="their_old:Silent",
        broken="their_unimportable:it", nothing="their_good:nothing", crash="their_crash:it", mock="their_good:Good",
        impure="their_good:select_is_pure", dies="their_good:segfaults",
        **{name: f"their_bugs:{name}" for name in ("raises", "ends", "none", "fickle", "shut", "empty", "short")},
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(theirs))
    monkeypatch.setenv("PYTHONPATH", str(theirs))
    for name in ("here", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "here")

    def call(*words: str) -> Said:
        code = run(words)
        return (code, *capsys.readouterr())

    return call


def test_the_list_shows_the_fault_of_each_plugin(command: Callable[..., Said]) -> None:
    code, out, _ = command("plugin", "list", "-o", "json")
    assert code == 0
    found = json.loads(out)["plugins"]
    trouble = {one["name"]: one["trouble"] for one in found if one["package"] == "theirs" or one["trouble"]}
    assert trouble.pop("good") == ""
    assert "offers a backend of the same name" in trouble.pop("mock")
    assert {name: text for name, text in trouble.items() if name in ("impure", "dies")} == {"impure": "", "dies": ""}
    assert "was written for interface 2.99, this autosched has" in trouble["old"]
    assert "does not say which interface it was written for" in trouble["silent"]
    assert "of the package theirs cannot be loaded from their_unimportable:it: ModuleNotFound" in trouble["broken"]
    assert "cannot be loaded from their_good:nothing: AttributeError" in trouble["nothing"]
    assert "was killed by SIGSEGV" in trouble["crash"]
    gcc = next(one for one in found if one["name"] == "gcc")
    assert (gcc["api"], gcc["options"], gcc["package"]) == ("2.0", ["repeat", "flags"], "autosched")
    assert gcc["about"].startswith("Tunes a C program")


def test_the_table_has_a_line_for_each_plugin_and_each_fault(command: Callable[..., Said]) -> None:
    _, out, _ = command("plugin", "list")
    assert " gcc " in out
    assert " ! broken: backend 'broken' of the package theirs cannot be loaded" in out


def test_the_options_of_a_backend_come_with_defaults_and_meanings(command: Callable[..., Said]) -> None:
    code, out, _ = command("plugin", "list", "gcc")
    assert code == 0
    assert " --option repeat=5\n     Number of timed calls of a measurement.\n" in out
    code, _, err = command("plugin", "list", "gc")
    assert code != 0 and "no backend is named 'gc'" in err
    code, _, err = command("plugin", "list", "old")
    assert code != 0 and "was written for interface 2.99" in err


def test_a_new_package_runs_at_once(
    command: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = command("plugin", "new", "my_tuner")
    folder = Path(out.strip())
    assert (code, folder.name) == (0, "autosched-backend-my-tuner")
    assert "autosched plugin check my_tuner" in err
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert len(texts) == 5
    assert not any("mytuner" in text.lower().replace("my_tuner", "") for text in texts if "MyTuner" not in text)
    assert not [path for path in folder.rglob("*") if scaffold.BACKEND.word in path.name]
    package = folder.absolute() / "autosched_backend_my_tuner/__init__.py"
    theirs = install(
        tmp_path / "new", GROUP, {"autosched_backend_my_tuner": package.read_text()},
        my_tuner="autosched_backend_my_tuner:MyTunerBackend",
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(folder.absolute()))
    monkeypatch.syspath_prepend(str(theirs))
    example = str(folder / "autosched_backend_my_tuner/example.json")
    code, out, err = command("plugin", "run", "my-tuner", "--trials", "8", "--model", example)
    assert code == 0, err
    assert "outputs equal to the default choice" in out
    code, out, err = command("plugin", "check", "my-tuner", "--model", example, "--only", "select_is_pure")
    assert (code, out.splitlines()[-1]) == (0, " my-tuner: 1 kept, 0 broken, 0 not applicable")


@pytest.mark.parametrize("name", ["My", "1st", "a-b", "../x", "class", "", "x" * 41, "mock", "naïve"])
def test_an_invalid_or_used_name_is_refused(command: Callable[..., Said], name: str) -> None:
    code, _, err = command("plugin", "new", name)
    assert code == 2
    assert "is no name for a backend" in err or "is installed already" in err
    assert not list(Path().iterdir())


def test_an_existing_folder_is_not_changed(command: Callable[..., Said]) -> None:
    taken = Path("autosched-backend-mine")
    taken.mkdir()
    code, _, err = command("plugin", "new", "mine")
    assert (code, list(taken.iterdir())) == (2, [])
    assert "is there already, and nothing was written" in err
    Path("file").touch()
    assert "cannot be written" in command("plugin", "new", "mine", "--into", "file/below")[2]


def test_a_check_explains_and_gives_its_exit_code(command: Callable[..., Said]) -> None:
    code, out, _ = command("plugin", "check", "impure", "--only", "select_is_pure", "--only", "the_network_is_valid")
    assert code == 1
    assert " FAIL select_is_pure\n        must be: A second select without an update" in out
    assert "their_good.py:" in out
    assert "        to do:   A step may be lost" in out
    assert out.endswith(" impure: 1 kept, 1 broken, 0 not applicable\n")
    code, out, _ = command("plugin", "check", "dies", "-o", "json", "--only", "build_answers_each_candidate")
    assert code == 1
    assert "killed by SIGSEGV" in json.loads(out)["verdicts"][0]["seen"]
    assert command("plugin", "check", "impure", "--in-process", "--only", "select_is_pure")[0] == 1


def test_a_mistyped_option_is_reported_once(command: Callable[..., Said]) -> None:
    code, out, _ = command("plugin", "check", "good", "--option", "colour=red")
    assert code == 1
    assert out.count("there is no option colour") == out.count(" FAIL ") == 1
    assert out.endswith(" good: 1 kept, 1 broken, 0 not applicable; the rest was not checked\n")


def test_a_failed_import_is_reported_once(command: Callable[..., Said]) -> None:
    code, out, _ = command("plugin", "check", "empty")
    assert (code, out.count(" FAIL ")) == (1, 1)
    assert " FAIL the_model_is_imported" in out
    assert out.endswith(" empty: 2 kept, 1 broken, 0 not applicable; the rest was not checked\n")


def test_a_failed_method_fails_only_its_own_check(command: Callable[..., Said]) -> None:
    _, _, err = command("plugin", "run", "short", "--stage", "import")
    assert "KeyError" in err
    assert "spaces" not in err
    _, out, _ = command("plugin", "check", "short", "--only", "the_model_is_imported")
    assert "where:" in out
    assert "their_bugs.py:17, short\n" in out


def test_missing_things_are_reported(command: Callable[..., Said]) -> None:
    assert command("plugin", "check", "unknown")[0] == 4
    code, _, err = command("plugin", "check", "good", "--only", "typo")
    assert (code, "there is no check 'typo'; there are: the_interface" in err) == (4, True)
    code, _, err = command("plugin", "check", "good", "--only", "select_is_pur")
    assert (code, "there is no check 'select_is_pur'; did you mean select_is_pure?" in err) == (4, True)
    assert "cannot be loaded from their_unimportable" in command("plugin", "run", "broken")[2]


def test_one_stage_runs_after_the_stages_it_needs(command: Callable[..., Said]) -> None:
    code, out, err = command("plugin", "run", "good", "--stage", "build")
    assert code == 0
    assert [line.split()[0] for line in err.splitlines()] == ["import", "select", "build"]
    assert "0 records; files in" in out


@pytest.mark.parametrize(
    ("name", "stage", "said"),
    [
        (
            "raises",
            "update",
            ["update of the plugin failed at ", "/their_bugs.py:12, <lambda>", "ZeroDivisionError: division by zero"],
        ),
        (
            "ends",
            "profile",
            ["profile of the plugin failed at ", "/their_bugs.py:10, leaves", "SystemExit: 3, which would have ended"],
        ),
        ("none", "profile", ["profile answered with a NoneType; it must yield one Measured for each candidate"]),
        (
            "fickle",
            "import",
            ["import_network of the plugin failed at ", "/their_bugs.py:15, <lambda>", "no attribute 'nothing'"],
        ),
        ("empty", "import", ["/their_bugs.py:35, empty.session.import_network", "it is a NoneType, not a Network"]),
        (
            "shut",
            "",
            ["open of the plugin failed at ", "/their_bugs.py:31, open", "IndexError: list index out of range"],
        ),
    ],
)
def test_a_bug_of_a_plugin_is_reported_as_one(
    command: Callable[..., Said], tmp_path: Path, name: str, stage: str, said: list[str]
) -> None:
    code, _, err = command("plugin", "run", name)
    assert code in (1, 2)
    assert all(words in err for words in said), err
    assert "bug in autosched" not in err
    assert "src/autosched/" not in err, "our own lines say nothing"
    assert not stage or f"{stage:9}" in err
    if "Traceback" in err and stage:
        assert err.endswith(f"autosched plugin run {name} --stage {stage} --pdb\n")
    assert all(str(folder / "job") in err for folder in (tmp_path / "tmp").iterdir())


def test_a_trial_leaves_only_the_reported_files(command: Callable[..., Said], tmp_path: Path) -> None:
    for stage in ("import", "select", "update"):
        assert "files" not in command("plugin", "run", "good", "--stage", stage)[1]
    assert not list((tmp_path / "tmp").iterdir())
    _, out, _ = command("plugin", "run", "good")
    files = [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["toy.json"]
    assert f" results in {files[0].parent}\n" in out


def test_leaving_the_debugger_ends_the_command(
    command: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEBUG, "")
    monkeypatch.setattr("sys.stdin", io.StringIO("quit\n"))
    code, _, err = command("plugin", "run", "good", "--stage", "select", "--pdb")
    assert (code, err.splitlines()[-1]) == (130, "autosched: interrupted")
    assert not list((tmp_path / "tmp").iterdir())


def test_a_debugger_stops_in_the_stage(command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUG, "")  # restores the variable that the command sets
    monkeypatch.setattr("sys.stdin", io.StringIO("where\ncontinue\n"))
    _, out, err = command("plugin", "run", "good", "--stage", "select", "--pdb")
    assert "(Pdb)" in out
    assert "local_job.py" in out
    assert "select" in err
