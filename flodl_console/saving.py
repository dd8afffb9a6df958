"""Copies and files that an operator takes from the screen.

What it is: the clipboard through the terminal (OSC 52), and CSV, JSON and SVG files in
the directory in which the console was started.
What it is not: the texts; `view.export` and the screens make those.
Who drives it: the app's actions.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from flodl_console.screens.choice import ChoiceScreen
from flodl_console.shell import Shell
from flodl_console.view.export import ranks_csv, ranks_json, windows_csv, windows_json
from flodl_console.view.formats import finite
from flodl_console.view.model import ConsoleView
from flodl_console.view.records import SourceKind
from flodl_core.config.load import load_agent
from flodl_core.errors import ConfigError
from flodl_core.ids import RunId
from flodl_core.telemetry.run_directory import RunDirectory, safe_name

_KINDS: Final = (
    ("ranks.csv", "Ranks as CSV"),
    ("ranks.json", "Ranks as JSON"),
    ("windows.csv", "Windows as CSV"),
    ("windows.json", "Windows as JSON"),
    ("screen.svg", "This screen as SVG"),
)
_CLIPBOARD: Final = "to the terminal's clipboard, if it has one (OSC 52)"
_TEXTS: Final = {
    "ranks.csv": ranks_csv,
    "ranks.json": ranks_json,
    "windows.csv": windows_csv,
    "windows.json": windows_json,
}


class Saving:
    """Writes files for a shell."""

    def __init__(
        self,
        shell: Shell,
        *,
        copy: Callable[[str], None],
        draw_svg: Callable[[], str],
        directory: Path,
        token_file: Path | None,
    ) -> None:
        """Work for a shell.

        Args:
            shell: whose view is written.
            copy: puts a text on the terminal's clipboard.
            draw_svg: returns the screen in front as SVG.
            directory: where files go.
            token_file: with the join token, if one was named.
        """
        self._shell, self._copy, self._draw_svg = shell, copy, draw_svg
        self._directory, self._token_file = directory, token_file

    def copy_text(self, text: str) -> None:
        """Put what is chosen on the clipboard."""
        if text:
            self._copy(text)
            self._shell.notice(f"copied {_CLIPBOARD}")
        else:
            self._shell.notice("there is nothing to copy here", is_problem=True)

    def copy_token(self) -> None:
        """Put the run's join token on the clipboard; it is shown nowhere."""
        view = self._shell.latest
        if view.is_read_only or view.source is not SourceKind.LIVE:
            self._shell.notice("only a live run that is not read-only has a token", is_problem=True)
            return
        try:
            token = self._token(view)
        except ConfigError as error:
            self._shell.notice(error.reason, is_problem=True)
            return
        if token is None:
            self._shell.notice(
                "the token is not on this machine: name it with --token-file", is_problem=True
            )
            return
        self._copy(token)
        self._shell.notice(f"the join token was copied {_CLIPBOARD}")

    def _token(self, view: ConsoleView) -> str | None:
        """Return the token by which the run was found, else that of its directory.

        Raises:
            ConfigError: the file cannot be used.
        """
        feed = self._shell.feed
        if feed is not None and feed.join_token is not None:
            return feed.join_token
        if self._token_file is not None:
            return load_agent({"token_file": str(self._token_file)}).agent.token
        run = None if view.document is None else view.document.run
        if run is None or run.run_dir is None:
            return None
        return RunDirectory(Path(run.run_dir), RunId(run.id)).read_token()

    def export(self) -> None:
        """Ask what is wanted, and write it."""
        self._shell.ask_person(
            ChoiceScreen("Write what to a file?", _KINDS, clock=self._shell.clock),
            lambda kind: None if kind is None else self.write(kind),
        )

    def write(self, kind: str) -> None:
        """Write one of the kinds; say where, or why not."""
        view = self._shell.latest
        if view.document is None:
            self._shell.notice("there is nothing to write yet", is_problem=True)
            return
        text = self._draw_svg() if kind == "screen.svg" else _TEXTS[kind](view)
        self._shell.in_background(self._write(self._path(view, kind), text))

    async def _write(self, path: Path, text: str) -> None:
        try:
            await anyio.to_thread.run_sync(_write_new, path, text)
        except OSError as error:
            reason = error.strerror or str(error)
            self._shell.notice(
                f"not written: {reason}: {path.parent}; files go to the directory in which the "
                "console was started",
                is_problem=True,
            )
        else:
            self._shell.notice(f"written: {path}")

    def _path(self, view: ConsoleView, kind: str) -> Path:
        assert view.document is not None
        run = view.document.run
        second = int(finite(run.uptime_s) or 0.0)
        return self._directory / f"flodl-{safe_name(run.id)}-{second}s-{kind}"


def _write_new(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable by its owner's group as the umask says.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        raise
