"""Reads an experiment's file: parameters with lists of values, and settings of the run. All errors are reported at
once, each with its line."""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from autosched import backend, config, policy_registry
from autosched.errors import AutoschedError, RequestError
from autosched.experiments import models, table
from autosched.experiments.combinations import Values, combine, matches
from autosched.experiments.parameters import DAEMON, LABEL, OPTION, Value, names, parameter, trouble
from autosched.text.job_selectors import labels as checked_labels
from autosched.toml_lines import line_of

QUICK = "-quick"
"""Suffix of an experiment's name in its quick size."""
PRIORITY = -10
"""Default priority of an experiment's jobs: below those of people who wait."""
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
COMBINATIONS_MAX = 10_000
TOP = (
    "name",
    "about",
    "compare",
    "by",
    "against",
    "figures",
    "priority",
    "at_once",
    "together",
    "zip",
    "parameters",
    "quick",
    "exclude",
    "include",
    "labels",
    "daemon",
)
Keys = tuple[str, ...]


class Definition(Struct, frozen=True, kw_only=True):
    """An experiment as defined by its file."""

    name: str
    about: str = ""
    file: Path
    """Base of relative names of models and settings."""
    parameters: dict[str, tuple[Value, ...]]
    zips: tuple[tuple[str, ...], ...] = ()
    """Parameters whose lists are combined element by element."""
    exclude: tuple[dict[str, tuple[Value, ...]], ...] = ()
    include: tuple[dict[str, tuple[Value, ...]], ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    together: tuple[str, ...] = ()
    """Parameters: combinations that differ only in these run at the same time, as a batch, and alone. Empty: no
    batches."""
    at_once: int | None = None
    """Maximum number of its jobs at the same time; None: the daemon's limit."""
    priority: int = PRIORITY
    own_daemon: bool = False
    """Whether the jobs run in a separate daemon, without other jobs."""
    compare: str = ""
    """The parameter whose values are compared; empty: none."""
    by: tuple[str, ...] = ()
    """Parameters whose values form groups in comparisons."""
    against: Value | None = None
    """Reference value of the compared parameter; None: the first of its list."""
    figures: tuple[str, ...] = ()
    """Columns that are compared."""

    def combinations(self) -> list[Values]:
        """All jobs, in the order of submission. Jobs with the same policy and settings are adjacent."""
        found = combine(self.parameters, self.zips, self.exclude, self.include)
        daemons, batches = dict[str, int](), dict[str, int]()
        places = [
            (
                daemons.setdefault(str([one.get(name) for name in DAEMON]), len(daemons)),
                batches.setdefault(str(self.batch(one)), len(batches)),
            )
            for one in found
        ]
        return [one for _, one in sorted(zip(places, found, strict=True), key=itemgetter(0))]

    def along(self, parameter: str) -> tuple[str, ...]:
        """Parameters whose values follow this one."""
        return tuple(name for names in self.zips if parameter in names for name in names if name != parameter)

    def batch(self, values: Values) -> tuple[tuple[str, Value], ...]:
        """Parameters that are equal in all combinations of a batch; those of the daemon if there are no batches."""
        names = [name for name in values if name not in self.together] if self.together else DAEMON
        return tuple((name, values[name]) for name in names if name in values)


class DefinitionError(RequestError):
    """An invalid file; the message has a line for each error."""


def load(path: Path, *, quick: bool = False) -> Definition:
    """Read and check a file. `quick`: in its quick size. Raises DefinitionError with all errors."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path} cannot be read ({error}). Name the file of an experiment, FILE.toml") from None
    return parse(text, path, quick=quick)


def parse(text: str, path: Path, *, quick: bool = False) -> Definition:
    """Check the text of a file. Raises DefinitionError with all errors."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise DefinitionError(
            f"{path}:{line[1] if line else len(text.splitlines())}: not valid TOML: {error}"
        ) from None
    reader = _Reader(text, raw, path.absolute().parent, quick)
    definition = reader.read(path)
    if reader.errors or definition is None:
        raise DefinitionError("\n".join(f"{path}:{line}: {what}" for line, what in sorted(set(reader.errors))))
    return definition


class _Reader:
    """Parses the parts of a file, and collects their errors."""

    def __init__(self, text: str, raw: Mapping[str, Any], folder: Path, quick: bool) -> None:
        self._text, self._raw, self._folder, self._quick = text, raw, folder, quick
        zips = raw.get("zip")
        self._zipped = (
            {str(name) for one in zips if isinstance(one, list) for name in one} if isinstance(zips, list) else set()
        )
        self.errors: list[tuple[int, str]] = []

    def read(self, path: Path) -> Definition | None:
        """The definition; None if errors prevent one."""
        for key in self._raw:
            if key not in TOP:
                self._wrong((key,), f"{key!r} is not known here; {_near(key, TOP)}")
        lists = self._lists(self._raw.get("parameters"), ("parameters",))
        smaller = self._lists(self._raw["quick"], ("quick",)) if "quick" in self._raw else {}
        if self._quick:
            if not smaller:
                self._wrong((), "it has no quick size: no lists in [quick]")
            lists = {**lists, **smaller}
        if "model" not in lists and not self.errors:
            self._wrong(("parameters",), 'no model is named. Write in [parameters]: model = ["net.onnx"]')
        definition = Definition(
            name=self._name(path),
            about=self._one("about", str, "", "text in quotes"),
            file=path.absolute(),
            parameters=lists,
            zips=self._zips(lists),
            exclude=self._tables("exclude", lists),
            include=self._tables("include", lists, new=True),
            labels=self._labels(),
            together=self._names_of("together", self._raw.get("together", []), lists),
            at_once=self._one("at_once", int, None, "a whole number, at least 1", lambda number: number >= 1),
            priority=self._one("priority", int, PRIORITY, "-100 to 100", lambda number: -100 <= number <= 100),
            own_daemon=self._own_daemon(),
            **self._comparison(lists),
        )
        if not self.errors:
            self._check(definition)
        return definition

    def _check(self, definition: Definition) -> None:
        """Find errors that involve several parts."""
        whole = 1
        for values in definition.parameters.values():
            whole *= len(values)
        if whole > COMBINATIONS_MAX * max(1, max(map(len, definition.parameters.values())) ** 2):
            return self._wrong(("parameters",), f"{whole:,} combinations are more than anybody can run")
        everything = combine(definition.parameters, definition.zips)
        for number, some in enumerate(definition.exclude):
            if not any(matches(one, some) for one in everything):
                self._wrong(
                    ("exclude", str(number), next(iter(some))), "it leaves out nothing: no combination is like it"
                )
        count = len(definition.combinations())
        if not count:
            self._wrong(("exclude", "0", ""), "all combinations are left out, so there is nothing to run")
        if count > COMBINATIONS_MAX:
            self._wrong(
                ("parameters",), f"{count:,} jobs are too many; {COMBINATIONS_MAX:,} are allowed. Split the file"
            )
        used = {name for some in (definition.parameters, *definition.include) for name in some}
        if (shared := [name for name in DAEMON if name in used]) and not definition.own_daemon:
            what = " and ".join(shared)
            self._wrong(
                ("parameters", shared[0]),
                f"{what} belong{'s' if len(shared) == 1 else ''} to the daemon and would change it for everybody."
                " Let the experiment have a daemon of its own: own = true in [daemon]",
            )
        for name in definition.together:
            if name in DAEMON:
                self._wrong(("together",), f"jobs that run together share the daemon, so they cannot differ in {name}")

    # Parts ------------------------------------------------------------------------------------------------------------

    def _lists(self, table: object, path: Keys) -> dict[str, tuple[Value, ...]]:
        """A table of parameters: each with a value, or a list of them."""
        if not isinstance(table, Mapping):
            what = "[parameters] is missing" if table is None else f"{path[0]} is not a table"
            self._wrong(path, f"{what}. It gives each parameter its values: trials = [64, 128]")
            return {}
        flat: dict[str, object] = {}
        for key, value in table.items():
            if f"{key}." in (OPTION, LABEL) and isinstance(value, Mapping):
                flat |= {f"{key}.{name}": below for name, below in value.items()}
            else:
                flat[key] = value
        found = {}
        for name, value in flat.items():
            if parameter(name) is None:
                self._wrong((*path, name), f"no parameter is named {name!r}; {_near(name, names().split(', '))}")
                continue
            values = value if isinstance(value, list) else [value]
            if not values:
                self._wrong((*path, name), f"{name} has an empty list, so there would be no combination")
            for one in values:
                if (why := trouble(name, one)) or (why := self._lacks(name, str(one))):
                    self._wrong((*path, name), f"{name}: {why}")
                if values.count(one) > 1 and name not in self._zipped and not isinstance(one, Mapping | list):
                    self._wrong((*path, name), f"{name} has {one!r} twice")
            found[name] = tuple(self._models(values) if name == "model" else values)
        return found

    def _models(self, words: Sequence[object]) -> list[str]:
        """Names of the files that the words select."""
        try:
            return models.expand([str(word) for word in words], self._folder)
        except AutoschedError:  # already reported
            return []

    def _lacks(self, name: str, value: str) -> str:
        """Why the value of a parameter cannot be used on this machine; empty if it can."""
        try:
            match name:
                case "model":
                    models.expand([value], self._folder)
                case "backend":
                    backend.check_name(value)
                case "policy":
                    policy_registry.check_name(value)
                case "settings":
                    config.load(self._folder / value)
        except AutoschedError as error:
            return str(error)
        return ""

    def _tables(self, key: str, lists: Mapping[str, Sequence[Value]], *, new: bool = False) -> tuple[Any, ...]:
        tables = self._raw.get(key, [])
        if not isinstance(tables, list):
            self._wrong((key,), f"write [[{key}]], in two pairs of brackets")
            return ()
        found = []
        for number, one in enumerate(tables):
            some = self._lists(one, (key, str(number)))
            if one == {}:
                self._wrong((key, str(number), ""), f"an empty [[{key}]] says nothing")
            for name in some:
                if name not in lists and not new:
                    self._wrong(
                        (key, str(number), name), f"[parameters] does not name {name}, so it has one value only"
                    )
            found.append(some)
        return tuple(found)

    def _zips(self, lists: Mapping[str, Sequence[Value]]) -> tuple[tuple[str, ...], ...]:
        raw = self._raw.get("zip", [])
        if not isinstance(raw, list) or not all(isinstance(one, list) for one in raw):
            self._wrong(("zip",), 'zip takes lists of parameters that go in step: zip = [["model", "trials"]]')
            return ()
        found = []
        seen: set[str] = set()
        for one in raw:
            known = self._names_of("zip", one, lists)
            lengths = {name: len(lists[name]) for name in known}
            if len(set(lengths.values())) > 1:
                told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
                self._wrong(("zip",), f"lists that go in step need equal lengths: {told}")
            if twice := seen.intersection(known):
                self._wrong(("zip",), f"{', '.join(sorted(twice))} stands in two of the lists")
            seen.update(known)
            if len(known) > 1:
                found.append(known)
        return tuple(found)

    def _names_of(self, key: str, raw: object, lists: Mapping[str, Sequence[Value]]) -> tuple[str, ...]:
        if not isinstance(raw, list) or not all(isinstance(name, str) for name in raw):
            self._wrong((key,), f"{key} takes a list of names of parameters in quotes")
            return ()
        for name in raw:
            if name not in lists:
                self._wrong((key,), f"[parameters] does not name {name!r}; {_near(name, lists)}")
        return tuple(name for name in raw if name in lists)

    def _comparison(self, lists: Mapping[str, Sequence[Value]]) -> dict[str, Any]:
        """The fields of a comparison. "network" is another name of `model`."""
        raw = {key: self._raw[key] for key in ("compare", "by", "against", "figures") if key in self._raw}
        if raw and "compare" not in raw:
            self._wrong((next(iter(raw)),), "it belongs to a comparison, and `compare` does not name a parameter")
            return {}
        by = [raw["by"]] if isinstance(raw.get("by"), str) else raw.get("by", [])
        by = ["model" if name == "network" else name for name in by] if isinstance(by, list) else by
        compare = self._names_of(
            "compare", ["model" if one == "network" else one for one in [raw.get("compare")] if one], lists
        )
        if not compare:
            return {}
        found: dict[str, Any] = {"compare": compare[0], "by": self._names_of("by", by, lists)}
        values = lists[compare[0]]
        if len(values) < 2 and not any(compare[0] in some for some in self._raw.get("include", ())):
            self._wrong(("compare",), f"{compare[0]} has one value, so there is nothing to compare")
        if "against" in raw:
            found["against"] = raw["against"]
            if raw["against"] not in values:
                self._wrong(
                    ("against",), f"{raw['against']!r} is no value of {compare[0]}; there are: {_listed(values)}"
                )
        able = [name for name, kind in table.columns(()).items() if kind in (int, float)]
        figures = raw.get("figures", ["batch_s" if self._raw.get("together") else "took_s", "latency_s"])
        if not isinstance(figures, list) or not figures:
            self._wrong(("figures",), 'figures takes a list of columns: figures = ["latency_s"]')
            return found
        for name in figures:
            if name not in able:
                self._wrong(("figures",), f"{name!r} is no column of numbers; {_near(str(name), able)}")
        return {**found, "figures": tuple(map(str, figures))}

    def _labels(self) -> dict[str, str]:
        raw = self._raw.get("labels", {})
        if not isinstance(raw, Mapping):
            self._wrong(("labels",), '[labels] is a table: team = "vision"')
            return {}
        for key, value in raw.items():
            try:
                checked_labels([f"{key}={value}"])
            except AutoschedError as error:
                self._wrong(("labels", key), str(error))
        return {str(key): str(value) for key, value in raw.items()}

    def _own_daemon(self) -> bool:
        raw = self._raw.get("daemon", {})
        if not isinstance(raw, Mapping) or raw.keys() - {"own"} or not isinstance(raw.get("own", False), bool):
            self._wrong(("daemon",), "[daemon] takes one setting: own = true or false")
            return False
        return bool(raw.get("own", False))

    def _name(self, path: Path) -> str:
        name = self._one("name", str, path.stem, "text in quotes")
        if re.fullmatch(NAME, name) is None:
            self._wrong(("name",), f"{name!r} is no name: 1 to 64 letters, digits and _ . -, not first a sign")
        return f"{name}{QUICK}" if self._quick else str(name)

    def _one(
        self, key: str, kind: type, default: Any, allowed: str, check: Callable[[Any], bool] = lambda _: True
    ) -> Any:
        value = self._raw.get(key, default)
        if key in self._raw and (type(value) is not kind or not check(value)):
            self._wrong((key,), f"{key} is {value!r}; allowed: {allowed}")
            return default
        return value

    def _wrong(self, path: Keys, what: str) -> None:
        self.errors.append((line_of(self._text, list(path)), what))


def _listed(values: Sequence[Value]) -> str:
    return ", ".join(map(repr, values))


def _near(word: str, known: Sequence[str] | Mapping[str, object]) -> str:
    """ "did you mean 'trials'?", or the known words."""
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"
