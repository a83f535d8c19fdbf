"""Combines the values of an experiment's parameters: the product of the lists, as the matrices of CI systems. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import msgspec

from autosched.experiments.parameters import Value, value_of

Values = dict[str, Value]
"""Parameters of one job by name; a missing one has its default."""
Lists = Mapping[str, Sequence[Value]]
DIGEST_BYTES = 6


def combine(
    lists: Lists, together: Sequence[Sequence[str]] = (), exclude: Sequence[Lists] = (), include: Sequence[Lists] = ()
) -> list[Values]:
    """All combinations, each once, in the order of the lists: the last parameter changes first.

    `together`: names of parameters whose lists have one length and are combined element by element. `exclude`: a
    combination is left out if each named parameter has one of the named values. `include`: further combinations; a
    parameter that is not named takes all values of its list.
    """
    found = [one for one in _product(lists, together) if not any(matches(one, some) for some in exclude)]
    for some in include:
        others = [[name for name in names if name not in some] for names in together]
        found += _product({**lists, **some}, [names for names in others if len(names) > 1])
    # True equals 1 in Python, and not in JSON
    unique = {msgspec.json.encode(sorted(one.items())): one for one in reversed(found)}
    return list(reversed(unique.values()))


def matches(values: Mapping[str, Value], some: Lists) -> bool:
    """Whether each named parameter has one of the named values, or its default if it has none."""
    return all(value_of(values, name) in wanted for name, wanted in some.items())


def digest(values: Mapping[str, Value], model: str) -> str:
    """The name of a combination: equal for equal jobs, even if only one of two files contains a default.

    `model`: content hash of the model, so that another file under the same name makes another job.
    """
    told = {name: value for name, value in values.items() if name != "model" and value != value_of({}, name)}
    content = msgspec.json.encode([model, sorted(told.items())])
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def varied(combinations: Iterable[Mapping[str, Value]]) -> list[str]:
    """Parameters whose values differ between combinations, in their order."""
    known = list(combinations)
    names = dict.fromkeys(name for one in known for name in one)
    return [name for name in names if len({value_of(one, name) for one in known}) > 1]


def _product(lists: Lists, together: Sequence[Sequence[str]]) -> Iterator[Values]:
    """The product of the lists; lists in `together` count as one list of rows, at the position of the first."""
    first = {names[0]: tuple(names) for names in together}
    later = {name for names in together for name in names[1:]}
    axes = [first.get(name, (name,)) for name in lists if name not in later]
    rows = [list(zip(*(lists[name] for name in names), strict=True)) for names in axes]
    for chosen in product(*rows):
        values = {
            name: value for names, row in zip(axes, chosen, strict=True) for name, value in zip(names, row, strict=True)
        }
        yield {name: values[name] for name in lists}
