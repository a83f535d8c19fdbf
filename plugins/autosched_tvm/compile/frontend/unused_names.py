"""Names for values that a rewrite adds to a graph."""


def unused(like: str, taken: set[str]) -> str:
    """Returns a name that is not in `taken`, and adds it."""
    number = 0
    while (name := f"{like}__{number}") in taken:
        number += 1
    taken.add(name)
    return name
