"""Pictures of a terminal: each line of a screen is shown while it was there, and the last screen stays."""

from xml.etree import ElementTree

import pyte

from terminal_picture import LAST_SCREEN_S, SPEED, Piece, animation, screen, shown, still

SVG = "{http://www.w3.org/2000/svg}"


def typed(*texts: str) -> list[tuple[float, tuple[tuple[Piece, ...], ...]]]:
    """Returns the screens of a terminal of 20 x 2 after each text, six seconds apart."""
    terminal = pyte.Screen(20, 2)
    stream = pyte.Stream(terminal)
    screens = []
    for number, text in enumerate(texts):
        stream.feed(text)
        screens.append((6.0 * number, screen(terminal)))
    return screens


def test_pieces_have_the_colours_of_the_terminal_and_no_trailing_blanks() -> None:
    ((_, lines),) = typed("a \x1b[32mb\x1b[0m")
    assert lines == ((Piece("a ", "", "", False), Piece("b", "#7fd07a", "", False)), ())


def test_a_line_is_shown_from_its_first_screen_to_the_next_change() -> None:
    first, second = shown(typed("one", "", "\rtwo"))
    assert (first.from_s, first.to_s) == (0.0, 12.0 / SPEED)
    assert (second.from_s, second.to_s) == (12.0 / SPEED, 12.0 / SPEED + LAST_SCREEN_S)


def test_only_the_last_screen_is_visible_without_animations() -> None:
    picture = ElementTree.fromstring(animation(typed("a<b", "\rc&d"), "a & b"))
    groups = [group for group in picture.iter(f"{SVG}g") if group.get("class")]
    seen = {"".join(group.itertext()): group.get("visibility") for group in groups}
    assert seen == {"a<b": "hidden", "c&d": None}


def test_a_still_picture_shows_the_last_screen() -> None:
    picture = ElementTree.fromstring(still(typed("one", "\rtwo")[-1][1], "numbers"))
    assert ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")] == ["two"]
    assert "keyframes" not in still(typed("one")[-1][1], "numbers")
