"""Derives commands from methods: the fields of a method are the command's words and options, its docstring is the help.

A required field is a word, any other field an option: ``deadline_s`` is ``--deadline TIME``. A new method can therefore
be called from the console without more code.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from autosched import protocol as p
from autosched.daemon.console.command import Ask, Command, Said
from autosched.daemon.console.line_parser import Line, seconds
from autosched.errors import RequestError, misfit

BYTES = (p.PutBlob, p.GetBlob, p.Heartbeat)
"""Methods without use for people."""


def derived() -> dict[str, Command]:
    """Commands of all methods for users whose fields are plain values, by name."""
    kinds = {name: kind for name, kind in p.USER_METHODS.items() if kind not in BYTES and _is_plain(kind)}
    return {name: of_method(kind, name, _first_sentence(kind)) for name, kind in kinds.items()}


def of_method(kind: type[p.Method], name: str, about: str, *, done: str = "done") -> Command:
    """The command of one method. `done`: the answer if the method returns nothing."""
    words, options = _fields(kind)

    async def run(ask: Ask, line: Line) -> Said:
        if len(line.words) != len(words):
            takes = " ".join(map(_shown, words)) or "no words"
            raise RequestError(f"{line.name} takes {takes}. Type: help {line.name}")
        given = dict(zip(words, line.words, strict=True))
        given |= {options[option]: value for option, value in line.options.items() if option in options}
        answer = await ask(_method(kind, given))
        return Said(done) if isinstance(answer, p.Done) else Said("", list(_lines(answer)), name, answer)

    values = {field.name: _value_of(field) for field in _struct(kind).fields}
    placeholders = [*map(_shown, words), *(f"[--{option} {values[field]}]" for option, field in options.items())]
    return Command(" ".join([name, *placeholders]), about, run, dict.fromkeys(options, True))


def _fields(kind: type[p.Method]) -> tuple[list[str], dict[str, str]]:
    """The fields that are words, and a mapping from option to field for all others."""
    fields = msgspec.structs.fields(kind)
    optional = (field.name for field in fields if not field.required)
    return [field.name for field in fields if field.required], {name.removesuffix("_s"): name for name in optional}


def _shown(word: str) -> str:
    return word.removesuffix("_s").upper()


def _value_of(field: types.Field) -> str:
    if field.name.endswith("_s"):
        return "TIME"
    kinds = {types.IntType: "N", types.FloatType: "N", types.StrType: "TEXT"}
    return kinds.get(type(_inner(field.type)), "VALUE")


def _method(kind: type[p.Method], given: Mapping[str, str]) -> p.Method:
    """Make the method from these values. Raises RequestError if a value does not fit."""
    values = {name: seconds(text) if name.endswith("_s") else text for name, text in given.items()}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(f"{misfit(error)}. Type: help {p.wire_name(kind)}") from None


def _is_plain(kind: type[p.Method]) -> bool:
    """Whether each required value can be typed as one word."""
    return all(
        isinstance(_inner(field.type), types.IntType | types.FloatType | types.StrType)
        for field in _struct(kind).fields
        if field.required
    )


def _struct(kind: type[p.Method]) -> types.StructType:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return info


def _inner(kind: types.Type) -> types.Type:
    """The type itself; for an optional value, the type of the value."""
    if isinstance(kind, types.Metadata):
        return _inner(kind.type)
    if isinstance(kind, types.UnionType) and kind.includes_none and len(kind.types) == 2:
        return next(_inner(one) for one in kind.types if not isinstance(one, types.NoneType))
    return kind


def _first_sentence(kind: type[p.Method]) -> str:
    text = " ".join((kind.__doc__ or "").split())
    return text.partition(". ")[0].rstrip(".")


def _lines(answer: Struct) -> Iterator[str]:
    """One line for each field; for a list, one line for each entry, as JSON."""
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        for entry in value if isinstance(value, tuple | list) else (value,):
            yield f"{name}: {msgspec.json.encode(entry, enc_hook=str).decode()}"
