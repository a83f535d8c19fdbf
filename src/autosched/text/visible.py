"""Makes characters visible that would control a terminal or hide text, wherever others' words are printed.

Control characters move the cursor, retitle a window or answer in the user's name (C0, DEL, and C1 such as U+009B, which
begins a sequence like ESC [). Marks of writing direction show a text in another order than it is in (CVE-2021-42574).
"""

import re
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")
_CLASSES = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)
_HIDDEN = re.compile(f"[{_CLASSES}]")
_HIDDEN_BUT_COLOURS = re.compile(f"(\x1b\\[[0-9;]*m)|[{_CLASSES}]")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet takes for a formula."""


def visible(text: str, *, colours: bool = False) -> str:
    """The text with such characters as escapes, ``\\x1b``; line ends and tabs stay. `colours`: sequences that only
    change colours stay too, since this program makes them."""
    pattern = _HIDDEN_BUT_COLOURS if colours else _HIDDEN
    return pattern.sub(lambda found: found[1] if colours and found[1] else _escape(found[0]), text)


def visible_json(text: str) -> str:
    """The same for a JSON document, in the escapes of JSON: it still means the same."""
    return _HIDDEN.sub(lambda found: _json_escape(found[0]), text)


def one_line(text: str) -> str:
    """The same on one line."""
    return visible(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def csv_cell(text: str) -> str:
    """A cell of a CSV file that no spreadsheet takes for a formula: a quote precedes it, unless it is a number."""
    shown = visible(text)
    return f"'{shown}" if text.startswith(FORMULA) and not _is_number(text) else shown


def everywhere(value: T) -> T:
    """The same in all texts of an answer of the daemon: structs, lists and dictionaries are copied."""
    made: Any = value
    if isinstance(value, str):
        made = one_line(value)
    elif isinstance(value, Struct):
        made = replace(value, **{name: everywhere(getattr(value, name)) for name in value.__struct_fields__})
    elif isinstance(value, tuple):
        made = tuple(map(everywhere, value))
    elif isinstance(value, list):
        made = [everywhere(one) for one in value]
    elif isinstance(value, dict):
        made = {everywhere(key): everywhere(one) for key, one in value.items()}
    return cast(T, made)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
