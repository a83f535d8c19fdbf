"""Names, defaults and meanings of a backend's options."""

from typing import Annotated

from msgspec import Meta, Struct, field

from autosched.conformance.option_help import OptionHelp, option_help


class Base(Struct):
    """Options that several backends share."""

    batch: Annotated[int, Meta(ge=1)] = 8
    """Number of candidates per round of a task."""
    bare: str = ""


class Own(Base, kw_only=True):
    """Options of one backend."""

    needed: int
    """A number without a default."""
    made: Annotated[int, Meta(description="Text from elsewhere.")] = 3
    """Not this text."""
    many: dict[str, int] = field(default_factory=dict)
    bare: str = "x"
    """Described by the later class."""


def test_each_option_has_its_default_and_the_text_below_it() -> None:
    assert option_help(Own) == [
        OptionHelp("batch", "8", "Number of candidates per round of a task."),
        OptionHelp("bare", '"x"', "Described by the later class."),
        OptionHelp("needed", "", "A number without a default."),
        OptionHelp("made", "3", "Text from elsewhere."),
        OptionHelp("many", "{}", ""),
    ]


def test_a_class_that_is_no_struct_has_no_options() -> None:
    assert option_help(None) == []
    assert option_help(dict) == []


def test_a_class_without_source_has_names_and_defaults() -> None:
    scope: dict[str, type] = {}
    exec("from msgspec import Struct\nclass Made(Struct):\n    a: int = 1\n", scope)
    assert option_help(scope["Made"]) == [OptionHelp("a", "1", "")]
