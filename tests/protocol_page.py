"""Writes the generated part of docs/protocol.md, on methods and types, from protocol/: python
tests/protocol_page.py."""

import ast
import inspect
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from autosched import backend
from autosched.protocol import CLIENT_METHODS, DAEMON_METHODS, HELLO, USER_METHODS, Method

PAGE = Path(__file__).parents[1] / "docs/protocol.md"
BEGIN, END = "<!-- generated from protocol/ -->\n", "<!-- end -->\n"
TABLES = (
    ("Anyone, first", HELLO),
    ("A client asks the daemon", CLIENT_METHODS),
    ("The daemon asks a client", DAEMON_METHODS),
    ("A user asks the daemon", {name: kind for name, kind in USER_METHODS.items() if name not in CLIENT_METHODS}),
)


def generated() -> str:
    """Returns the text on methods, and on each type that they mention."""
    lines: list[str] = []
    seen: dict[str, type[Struct]] = {}
    for title, methods in TABLES:
        lines += [f"### {title}", ""]
        for name, kind in methods.items():
            needs = f" (needs the role {kind.least_role.value})" if methods is TABLES[-1][1] else ""
            lines += described(f"`{name}` → {_result(kind)}{needs}", kind, seen)
            _note(types.type_info(kind.result), seen)
    lines += ["### Types", ""]
    _note(types.type_info(backend.Evaluation), seen)  # of a file, not of a method
    done: set[str] = set()
    while todo := [name for name in seen if name not in done]:
        for name in sorted(todo):
            done.add(name)
            lines += described(f"**{name}**", seen[name], seen)
    return "\n".join(lines) + "\n"


def _result(kind: type[Method]) -> str:
    return kind.result.__name__


def described(title: str, kind: type[Struct], seen: dict[str, type[Struct]]) -> list[str]:
    """Returns the text on a struct and its fields."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    meaning = _meanings(kind)
    lines = [f"{title}: {' '.join((inspect.getdoc(kind) or '').split())}", ""]
    for field in info.fields:
        _note(field.type, seen)
        default = "" if field.required else f", default {_default(field)}"
        told = f". {meaning[field.name]}" if field.name in meaning else ""
        lines.append(f"- `{field.encode_name}`: {said(field.type)}{default}{told}")
    return [*lines, ""] if info.fields else lines


def _default(field: types.Field) -> str:
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return "nil" if value is None else msgspec.json.encode(value).decode()


def said(kind: types.Type) -> str:
    """Returns a type in words."""
    match kind:
        case types.Metadata(type=inner):
            return said(inner)
        case types.NoneType():
            return "nil"
        case types.BoolType():
            return "bool"
        case types.IntType() | types.FloatType():
            name = "int" if isinstance(kind, types.IntType) else "float"
            bounds = ((kind.gt, "above"), (kind.ge, "at least"), (kind.lt, "below"), (kind.le, "at most"))
            return " ".join([name, *(f"{word} {_number(bound)}" for bound, word in bounds if bound is not None)])
        case types.StrType():
            long = f" of at most {kind.max_length} characters" if kind.max_length else ""
            return f"text{long}" + (f" like `{kind.pattern}`" if kind.pattern else "")
        case types.BytesType():
            if kind.min_length and kind.min_length == kind.max_length:
                return f"{kind.max_length} bytes"
            return "bytes" + (f", at most {kind.max_length}" if kind.max_length else "")
        case types.EnumType():
            return " or ".join(f'"{one.value}"' for one in kind.cls)
        case types.StructType():
            return kind.cls.__name__
        case types.VarTupleType():
            return f"array of {said(kind.item_type)}" + (f", at most {kind.max_length}" if kind.max_length else "")
        case types.TupleType():
            return f"array [{', '.join(map(said, kind.item_types))}]"
        case types.DictType():
            return f"map of {said(kind.key_type)} to {said(kind.value_type)}"
        case types.UnionType():
            return " or ".join(map(said, kind.types))
    raise TypeError(f"the page has no words for {kind}")


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _note(kind: types.Type, seen: dict[str, type[Struct]]) -> None:
    """Collects the structs in a type."""
    if isinstance(kind, types.StructType):
        seen.setdefault(kind.cls.__name__, kind.cls)
    for inner in _inner(kind):
        _note(inner, seen)


def _inner(kind: types.Type) -> Iterable[types.Type]:
    match kind:
        case types.Metadata(type=inner):
            return (inner,)
        case types.VarTupleType():
            return (kind.item_type,)
        case types.TupleType():
            return kind.item_types
        case types.DictType():
            return (kind.key_type, kind.value_type)
        case types.UnionType():
            return kind.types
    return ()


def _meanings(kind: type[Struct]) -> dict[str, str]:
    """Returns the docstrings below the fields in the source."""
    (described,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(described, ast.ClassDef)
    body = described.body
    found = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            value: Any = below.value
            found[field.target.id] = " ".join(str(value.value).split())
    return found


def page() -> str:
    """Returns the page with its generated part up to date."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + "\n" + generated() + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(page())
