"""`run_console`: from settings to an exit code, with the terminal as it was before.

What it is: the one entry that the command line calls.
What it is not: the application; `app` is.
Who drives it: `flodl console`.
"""

import sys

from flodl_console.app import ConsoleApp
from flodl_console.opening import launch_of, open_feed
from flodl_console.settings import ConsoleSettings
from flodl_console.terminal import given_back
from flodl_console.view.facts import is_gone
from flodl_console.view.formats import duration
from flodl_console.view.model import ConsoleView
from flodl_console.view.records import SourceKind
from flodl_console.view.texts import clean
from flodl_core.ids import ExitCode


def run_console(settings: ConsoleSettings) -> int:
    """Show the console until the person leaves; return the command's exit code.

    The exit code is that of leaving (0), of a crash (1), or of the signal that ended it;
    it says nothing of the run, which goes on by itself.

    Raises:
        FlodlError: what was asked for cannot be shown; the terminal is untouched.
    """
    feed = open_feed(settings)
    app = ConsoleApp(settings, feed=feed, launch=launch_of(settings))
    with given_back(app.leave) as start_alarm:
        app.before_leaving = start_alarm
        app.run(mouse=False)
    code = ExitCode.FAILED if app.return_code is None else app.return_code
    if code in (ExitCode.DONE, ExitCode.FAILED) and (words := farewell(app.latest)):
        sys.stdout.write(words + "\n")
    return code


def farewell(view: ConsoleView) -> str:
    """Return what is said once the console is gone: how the run is found again, or its end.

    Empty for a replay or a demo, and where there was no run.
    """
    document = view.document
    if view.source is not SourceKind.LIVE or document is None:
        return ""
    if document.end is not None:
        reason = clean(document.end.reason)
        return (
            f"{clean(document.run.name)} has ended: {reason} (exit code {document.end.exit_code})"
        )
    name = clean(document.run.name)
    if is_gone(view):
        return f"{name} is gone: {clean(view.link_detail)}"
    if not view.is_current:
        return (
            f"detached; {name} did not answer for {duration(view.age_s)}: whether it goes on is "
            "not known; `flodl status` asks again"
        )
    return f"detached; {name} goes on: `flodl console` shows it again, `flodl stop` ends it"
