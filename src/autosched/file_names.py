"""Names of files, folders and jobs that are made from any text, such as the name of a user's file."""

import hashlib
import os
import unicodedata
from itertools import groupby

NAME_BYTES_MAX = 100
"""Maximum length of a made name in bytes: a file system takes 255, and suffixes are added."""
DIGITS = 4
"""Number of hexadecimal digits that tell a changed name from others."""
SUFFIX_CHARACTERS_MAX = 20
_REFUSED = r"\s\x00-\x1f\x7f-\x9f/\\\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
PATTERN = rf"^[^{_REFUSED}.\-][^{_REFUSED}]{{0,199}}$"
"""Pattern of names that other machines may give to a file here: of any script, without a folder, a space, a control
character or one that turns the direction of text; not hidden, and no option of a command."""


def made_from(text: str) -> str:
    """A name like the text, and another one for each other text.

    Letters, digits and marks of all scripts stay, and "_", "-" and "."; others become "_". A name that differs from the
    text ends with digits of the text's hash.
    """
    kept = _plain(unicodedata.normalize("NFC", text)).strip(".-")
    if kept and kept == text and len(kept.encode()) <= NAME_BYTES_MAX:
        return kept
    digits = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGITS]
    room = kept.encode()[: NAME_BYTES_MAX - DIGITS - 1].decode(errors="ignore").strip("_.-")
    return f"{room}-{digits}" if room else f"model-{digits}"


def made_from_file(name: str) -> str:
    """Such a name of a file, with its suffix, which may determine its kind."""
    stem, suffix = os.path.splitext(name)
    return made_from(stem) + _plain(suffix)[:SUFFIX_CHARACTERS_MAX]


def _plain(text: str) -> str:
    """The text with "_" for each run of other characters."""
    runs = groupby(text, lambda one: one in "_.-" or unicodedata.category(one)[0] in "LNM")
    return "".join("".join(run) if stays else "_" for stays, run in runs)
