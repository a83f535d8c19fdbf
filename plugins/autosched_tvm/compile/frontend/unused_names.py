"""Names for values that a rewrite adds to a graph."""


def unused(like: str, taken: set[str]) -> str:
    """A name that is not in `taken` yet, and is from now on."""
    number = 0
    while (name := f"{like}__{number}") in taken:
        number += 1
    taken.add(name)
    return name
