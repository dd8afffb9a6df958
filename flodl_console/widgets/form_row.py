"""One line of the form: label, field, and what is wrong with the answer or what is taken.

What it is: a field with its words.
What it is not: a judge; the screen sets the complaint.
Who drives it: the form screen.
"""

from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.reactive import reactive
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static

from flodl_console.renderables.phrase_strip import CHOSEN
from flodl_console.themes import tone_style
from flodl_console.view.tones import Glyph, Tone


class FormRow(Horizontal):
    """A label, an input and a note."""

    DEFAULT_CSS = """
    FormRow { height: 1; width: 1fr; }
    FormRow > .label { width: 12; }
    FormRow > Input { width: 28; }
    FormRow > .note {
        width: 1fr; height: 1; padding: 0 0 0 2; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    input = getters.query_one(Input)
    label = getters.query_one(".label", Static)
    note = getters.query_one(".note", Static)

    complaint: reactive[str] = reactive("", init=False)
    hint: reactive[str] = reactive("", init=False)
    """What is taken where nothing is typed."""

    def __init__(
        self, name: str, label: str, *, value: str, meaning: str, choices: tuple[str, ...]
    ) -> None:
        """Ask for one setting.

        Args:
            name: of the setting.
            label: in front of the field.
            value: that stands in it at first.
            meaning: what the setting is, while nothing is wrong.
            choices: words that it takes; none if it takes others.
        """
        super().__init__(name=name)
        self._label, self._value, self._meaning, self._choices = label, value, meaning, choices

    def compose(self) -> ComposeResult:
        """Yield the three parts."""
        yield Static(Text(f" {self._label}"), classes="label")
        suggester = SuggestFromList(self._choices) if self._choices else None
        yield Input(
            self._value,
            name=self.name,
            suggester=suggester,
            compact=True,
            select_on_focus=False,
        )
        yield Static(classes="note")

    def on_mount(self) -> None:
        """Show what the setting is."""
        self._draw()

    def on_descendant_focus(self) -> None:
        """Mark the row in which one types."""
        self.label.update(Text(f"{CHOSEN}{self._label}", "bold"))

    def on_descendant_blur(self) -> None:
        """Take the mark away."""
        self.label.update(Text(f" {self._label}"))

    def watch_complaint(self) -> None:
        """Say what is wrong."""
        self._draw()

    def watch_hint(self, hint: str) -> None:
        """Show what is taken where nothing is typed."""
        self.input.placeholder = hint
        self._draw()

    def _draw(self) -> None:
        theme = self.app.theme
        if self.complaint:
            text = Text(f"{Glyph.BAD} {self.complaint}", tone_style(theme, Tone.BAD))
        else:
            text = Text(self._meaning, tone_style(theme, Tone.DIM))
        text.no_wrap = True
        text.overflow = "ellipsis"
        self.note.update(text)
