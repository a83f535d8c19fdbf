"""`autosched_tvm.api`: each name exists, and none is loaded before it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from autosched_tvm import api
from deadlines import DEADLINE_S


def imported_for_types() -> dict[str, str]:
    """Returns the dotted name that the type checker uses, by name."""
    tree = ast.parse(Path(api.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}


def test_types_and_names_agree() -> None:
    assert sorted(imported_for_types()) == sorted(api.__all__) == sorted({*api._MODULES, *api._HOME_OF})


@pytest.mark.tvm
@pytest.mark.parametrize("name", api.__all__)
def test_each_name_has_the_type_that_type_checkers_see(name: str) -> None:
    pytest.importorskip("tvm")
    found = getattr(api, name)
    expected = imported_for_types()[name]
    assert found.__name__ == expected if name in api._MODULES else f"{found.__module__}.{found.__name__}" == expected


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sketchspace'"):
        api.Sketchspace  # noqa: B018


def test_backends_on_tvm_are_read_without_tvm_and_numpy() -> None:
    program = """
import sys
import autosched_backend_ansor, autosched_backend_auto, autosched_backend_autotvm, autosched_backend_tc
print([name for name in ("tvm", "numpy", "onnx", "xgboost") if name in sys.modules])
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (answer.stdout.strip(), answer.stderr) == ("[]", "")
