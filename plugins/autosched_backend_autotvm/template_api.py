"""The names that packages with schedule templates may import: `docs/templates.md`."""

from autosched_backend_autotvm.config_space import Config, Knob, Value
from autosched_backend_autotvm.template_check import check
from autosched_backend_autotvm.templates.template import divisors, factor, lanes, number, pieces, word

__all__ = ["Config", "Knob", "Value", "check", "divisors", "factor", "lanes", "number", "pieces", "word"]
