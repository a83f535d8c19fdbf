"""The page of operators: which of ONNX's operators run, with which types, and what is refused."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx
from onnx import defs, helper
from tvm.relax.frontend.onnx import onnx_frontend

from autosched_tvm.compile import onnx_converters, onnx_import
from autosched_tvm.compile.frontend.decomposition import RULES
from onnx_suite.cases import TYPES, Case
from onnx_suite.table import Row

PAGE = Path(__file__).parents[2] / "docs/operators-supported.md"
HEAD = """# Operators

What `autosched tune` makes of each operator, by ONNX's own backend suite for the onnx package that autosched
installs. Written by `python -m onnx_suite --page` (with tests/ on the path) from the results of `make onnx-suite`.

"Runs": cases that give the expected numbers, types and shapes, with all inputs given at run time or with all but the
first constant, as exporters write them. The other cases are refused at import, with the reason, or found by the
verification, which hands over nothing wrong. ONNX Runtime runs more than is here where shapes depend on values.

"By": TVM's converter; autosched's "own", or TVM's with prepared arguments; "others": written as other operators, always
or where TVM misreads a part; "definition": expanded as the standard defines it. An attribute or an input that a
converter does not read is refused at import.

| operator | opsets | by | runs | types | not |
|---|---|---|---|---|---|
"""
FINE = ("pass", "rounding")


def maker(operator: str) -> str:
    """Returns the origin of an operator's converter, in the words of the page."""
    known = onnx_frontend._get_convert_map()
    with onnx_converters.recognisable():
        used = onnx_frontend._get_convert_map()
    by = ["others"] if operator in RULES else []
    if defs.has(operator, "") and not onnx_import.unsupported([helper.make_node(operator, [], [])]):
        by.append("TVM" if used.get(operator) is known.get(operator) else "own")
    elif operator not in RULES and defs.has(operator, ""):
        schema = defs.get_schema(operator, "")
        by += ["definition"] if schema.has_function or schema.has_context_dependent_function else []
    return ", ".join(by) or "-"


def text(cases: Iterable[Case], rows: Mapping[str, Row]) -> str:
    """The page."""
    own: defaultdict[str, list[tuple[Row, str, set[str], set[int]]]] = defaultdict(list)
    for case in cases:
        model = onnx.load_model_from_string(case.model)
        if case.name not in rows or len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        kinds = {
            TYPES.Name(v.type.tensor_type.elem_type).lower()
            for v in model.graph.input
            if v.type.HasField("tensor_type")
        }
        opsets = {int(one.version) for one in model.opset_import if one.domain == node.domain}
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        own[name].append((rows[case.name], case.name.removeprefix("test_"), kinds, opsets))
    lines = []
    for name, found in sorted(own.items()):
        fine = [one for one in found if one[0].best in FINE]
        types = ", ".join(sorted(set().union(*(kinds for _, _, kinds, _ in fine)))) or "-"
        opsets = sorted(set().union(*(numbers for *_, numbers in found)))
        lacking = [case for row, case, *_ in found if row.best not in FINE]
        said = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
        span = "-".join(dict.fromkeys(map(str, (opsets[0], opsets[-1])))) if opsets else ""
        lines.append(f"| {name} | {span} | {maker(name)} | {len(fine)} of {len(found)} | {types} | {said} |")
    return HEAD + "\n".join(lines) + "\n"
