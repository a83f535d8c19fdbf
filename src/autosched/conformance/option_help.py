"""Describes the options of a backend: names, defaults, and the docstring of each field."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator

import msgspec
from msgspec import Struct


class OptionHelp(Struct, frozen=True):
    """One option of a backend."""

    name: str
    default: str
    """As JSON; empty for a required option."""
    text: str
    """Meaning of the option; empty if its author wrote none."""


def option_help(options: type | None) -> list[OptionHelp]:
    """The options of a backend's options class, in its order; empty if the class is no msgspec struct."""
    if options is None or not (isinstance(options, type) and issubclass(options, Struct)):
        return []
    texts = {name: text for kind in reversed(options.__mro__) for name, text in _docstrings(kind)}
    found = []
    for field in msgspec.inspect.type_info(options).fields:  # type: ignore[attr-defined] # a StructType
        kind = field.type
        extra = kind.extra_json_schema if isinstance(kind, msgspec.inspect.Metadata) else None
        text = (extra or {}).get("description") or texts.get(field.name, "")
        found.append(OptionHelp(field.name, _default(field), " ".join(text.split())))
    return found


def _default(field: msgspec.inspect.Field) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    return "" if field.required else msgspec.json.encode(value).decode()


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """The docstrings of a class' fields; none without its source."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, below in itertools.pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, text
