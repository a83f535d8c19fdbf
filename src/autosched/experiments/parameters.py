"""The parameters of an experiment: their types, bounds and defaults."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from autosched import formatting
from autosched.api.settings import Settings
from autosched.errors import in_words
from autosched.model import DEFAULT_BACKEND, TRIALS_MAX, Goal, Name

Value = bool | int | float | str
OPTION, LABEL = "option.", "label."
"""Prefixes of a backend's options, and of words that only distinguish combinations."""


class Parameter(Struct, frozen=True):
    """One parameter, for which a file may give a list of values."""

    type: Any
    default: Value | None
    """None: the job is submitted without it."""
    meaning: str


PARAMETERS = {
    "model": Parameter(str, None, "a file, a folder of models, a pattern such as nets/*.onnx, or a name of the zoo"),
    "shape": Parameter(str, None, "shapes of dynamic inputs: x=1,3,48,320"),
    "target": Parameter(str, "auto", "a TVM target, or auto"),
    "device": Parameter(Name, "cpu", "a kind of device of the daemon"),
    "cores": Parameter(Annotated[int, Meta(ge=1, le=65_536)], None, "number of cores of the device"),
    "backend": Parameter(Name, DEFAULT_BACKEND, "what searches and compiles"),
    "layout": Parameter(Literal["keep", "nchw", "nhwc", "nchwc", "auto"], None, "layout of the convolutions"),
    "trials": Parameter(
        Annotated[int, Meta(ge=0, le=TRIALS_MAX)], None, "candidates to measure; 0: only what is known"
    ),
    "seed": Parameter(Annotated[int, Meta(ge=0, lt=2**31)], 0, "of what is random"),
    "fresh": Parameter(bool, True, "take nothing from the record store"),
    "target_ms": Parameter(Annotated[float, Meta(gt=0, le=1e9)], None, "latency with which the search ends"),
    "improve_by": Parameter(Annotated[float, Meta(gt=0, lt=1)], None, "share by which the latency is to fall"),
    "until_faster": Parameter(bool, False, "the search ends when the module is faster than the user's engine"),
    "deadline": Parameter(str, None, "time in which the job should be done: 30m"),
    "policy": Parameter(Name, None, "scheduling policy of the daemon"),
    "goal": Parameter(Literal[tuple(goal.value for goal in Goal)], None, "goal of the policy"),
    "settings": Parameter(str, None, "settings of the daemon, a TOML file"),
}
DAEMON = ("settings", "policy", "goal")
"""Parameters of a daemon, shared by all jobs that run at the same time."""
_OF_OPTION = Parameter(Value, None, "an option of the backend")
_OF_LABEL = Parameter(Value, None, "a word of your own")
_KINDS = {
    "object": "a table", "array": "a list", "str": "text in quotes", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "nothing", "datetime": "datetime", "date": "date", "time": "time",
}  # fmt: skip
"""Names of types in TOML."""


def parameter(name: str) -> Parameter | None:
    """The parameter with this name; None if there is none."""
    for beginning, found in ((OPTION, _OF_OPTION), (LABEL, _OF_LABEL)):
        if name.startswith(beginning) and name != beginning:
            return found
    return PARAMETERS.get(name)


def value_of(values: Mapping[str, Value], name: str) -> Value | None:
    """The value of a parameter in a combination, or its default; None if it has none."""
    return values.get(name, PARAMETERS[name].default if name in PARAMETERS else None)


def names() -> str:
    """All names, for messages."""
    return ", ".join((*PARAMETERS, f"{OPTION}NAME", f"{LABEL}NAME"))


def trouble(name: str, value: object) -> str:
    """Why a parameter cannot have this value, and what is allowed; empty if it can."""
    found = parameter(name)
    assert found is not None
    try:
        msgspec.convert(value, found.type)
        if name == "deadline":
            formatting.seconds(str(value))
        if name == "shape":
            shapes(str(value))
    except msgspec.ValidationError as error:
        what = in_words(str(error), _KINDS)
        allowed = getattr(found.type, "__args__", ()) if what.startswith("Invalid enum") else ()
        choice = f"; choose from: {', '.join(allowed)}" if allowed else ""
        return f"{value!r}: {what[:1].lower()}{what[1:]}{choice}"
    except ValueError as error:
        return str(error)
    return ""


def shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes of inputs: "x=1,3,48,320 mask=1,48" becomes {"x": (1, 3, 48, 320), "mask": (1, 48)}. Raises ValueError."""
    found = {}
    for word in text.split():
        name, _, extents = word.partition("=")
        sizes = extents.split(",")
        if not name or not all(size.isdecimal() and 0 < int(size) <= formatting.WHOLE_MAX for size in sizes):
            raise ValueError(f"{word!r} is no shape. Write NAME=D1,D2,..., for example x=1,3,48,320")
        found[name] = tuple(map(int, sizes))
    return found


def settings(values: Mapping[str, Value], labels: Mapping[str, str], priority: int) -> Settings:
    """The job's settings. Raises RequestError for values that exclude each other."""
    own = {name: values[name] for name in values if name in _SETTINGS}
    options = {name.removeprefix(OPTION): value for name, value in values.items() if name.startswith(OPTION)}
    if (layout := values.get("layout")) is not None:
        options["layout"] = layout
    deadline = values.get("deadline")
    wanted: dict[str, Any] = {"fresh": PARAMETERS["fresh"].default, **own}
    return Settings(
        **wanted, options=options, labels=labels, priority=priority,
        deadline_s=None if deadline is None else formatting.seconds(str(deadline)),
    )  # fmt: skip


_SETTINGS = frozenset(
    ("target", "device", "cores", "backend", "trials", "seed", "fresh", "target_ms", "improve_by", "until_faster")
)
"""Parameters that are settings of a job under the same name."""
