import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from autosched.api import tvm_programs
from autosched.errors import NotFound, RequestError
from autosched.process import json_command
from processes import dies


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a program as a child."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    def run(program: str, timeout_s: float = 30.0, **more: Any) -> dict[str, Any]:
        (tmp_path / "child_program.py").write_text(program)
        return asyncio.run(json_command.ask("child_program", ["word"], timeout_s=timeout_s, **more))

    return run


def test_the_last_line_is_the_answer(say: Any) -> None:
    assert say('import sys; print("noise"); print(\'{"ok": true, "words": "%s"}\' % sys.argv[1])') == {
        "ok": True,
        "words": "word",
    }


def test_each_object_is_passed_on(say: Any) -> None:
    passed: list[dict[str, Any]] = []
    answer = say("""print('noise\\n{"done": 1}\\n{"done": 2}\\n{"ok": true}')""", on_object=passed.append)
    assert passed == [{"done": 1}, {"done": 2}, answer]


def test_what_libraries_keep_for_themselves_is_gone_afterwards(
    say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOME stays empty: ONNX Runtime creates a database there when it is imported."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home/cache"))
    answer = say("""
import json, os
from pathlib import Path
try:
    import onnxruntime
except ImportError:
    pass
(Path(os.environ["XDG_CACHE_HOME"]) / "kept").write_text("")
print(json.dumps({"cache": os.environ["XDG_CACHE_HOME"]}))
""")
    assert not (tmp_path / "home").exists()
    assert not Path(answer["cache"]).exists()


def test_an_error_crosses_as_what_it_is(say: Any) -> None:
    with pytest.raises(NotFound, match="no such file"):
        say('import sys; print(\'{"ok": false, "code": "not_found", "error": "no such file"}\'); sys.exit(1)')


def test_a_crash_names_the_signal(say: Any) -> None:
    with pytest.raises(RequestError, match=r"killed by SIGSEGV.*autosched doctor"):
        say("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")


def test_a_traceback_is_shown_only_where_nothing_better_is_known(say: Any) -> None:
    with pytest.raises(RequestError, match=r"(?s)exit code 1.*ZeroDivisionError"):
        say("1 / 0")


def test_missing_tvm_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    (tmp_path / "child_program.py").write_text("raise ModuleNotFoundError(\"No module named 'tvm'\", name='tvm')")
    with pytest.raises(RequestError, match=r"pip install 'autosched\[tvm\]'"):
        asyncio.run(tvm_programs.ask("child_program", [], timeout_s=30.0))


def test_a_child_that_hangs_is_killed_with_its_children(say: Any, tmp_path: Path) -> None:
    pid, timeout_s = tmp_path / "pid", 0.5
    program = f"""
import os, time
if os.fork() == 0:
    open({str(tmp_path / "begun")!r}, "w").write(str(os.getpid()))
    os.rename({str(tmp_path / "begun")!r}, {str(pid)!r})
time.sleep(600)
"""
    while not pid.exists():  # on a busy machine it starts later
        timeout_s *= 2
        with pytest.raises(RequestError, match=f"did not end within {timeout_s:g} s"):
            say(program, timeout_s=timeout_s)
    assert dies(int(pid.read_text()))
