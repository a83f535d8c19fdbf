"""Options of a job, with defaults."""

from autosched_tvm.api import LayoutOption, options


class Options(options.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The methods that take part."""

    layout: LayoutOption = LayoutOption.NCHWC
    """Memory layout of convolutions; blocked ones are as fast as the core can multiply."""
    backends: str = "autotvm,ansor,tc"
    """Names with commas between; of equals the first is preferred."""


def names(given: Options) -> list[str]:
    """The backends that take part, each once."""
    return [*dict.fromkeys(name.strip() for name in given.backends.split(",") if name.strip())]
