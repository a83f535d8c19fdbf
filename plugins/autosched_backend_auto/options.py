"""Options of a job, with defaults."""

from autosched_tvm.api import LayoutOption, options


class Options(options.Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the portfolio."""

    layout: LayoutOption = LayoutOption.NCHWC
    """Memory layout of convolutions; blocked ones use all lanes of the core's vectors."""
    backends: str = "autotvm,ansor,tc"
    """Names, separated by commas; among equals the first is preferred."""


def names(given: Options) -> list[str]:
    """The backends of the portfolio, each once."""
    return [*dict.fromkeys(name.strip() for name in given.backends.split(",") if name.strip())]
