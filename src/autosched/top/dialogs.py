"""Two small windows: a message, and a request for a line."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Say(ModalScreen[None]):
    """Shows a message until a key is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,enter,q,space", "dismiss", "Close")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """A title, the text, and how to close it."""
        with Vertical(classes="window"):
            yield Static(self._title, classes="title", markup=False)
            yield Static(self._text, markup=False)
            yield Static("Esc closes", classes="hint")


class Ask(ModalScreen[str | None]):
    """Asks for a line; None if the user cancels."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss(None)", "Leave it")]

    def __init__(self, question: str, proposal: str = "") -> None:
        super().__init__()
        self._question, self._proposal = question, proposal

    def compose(self) -> ComposeResult:
        """The question, and the input field."""
        with Vertical(classes="window"):
            yield Static(self._question, classes="title", markup=False)
            yield Input(self._proposal)
            yield Static("Enter does it, Esc leaves everything as it is", classes="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the answer."""
        self.dismiss(event.value)
