"""Which feed a command line means, and the feed of a run that the form starts.

What it is: settings in, a feed out.
What it is not: the search for a run, or the child process; `attach` and `launch` do those.
Who drives it: `running.run_console` and the form.
"""

from collections.abc import Coroutine
from functools import partial
from pathlib import Path

from flodl_console.attach import find_live_feed, launched_feed
from flodl_console.demo.scenarios import DEFAULT_RANKS
from flodl_console.feed.demo import DemoFeed
from flodl_console.feed.replay import ReplayFeed, check_record
from flodl_console.feed.source import Feed
from flodl_console.launch import start_headless
from flodl_console.run_form import FormReview
from flodl_console.settings import ConsoleSettings
from flodl_core.telemetry.run_directory import NoLiveRunError


def open_feed(settings: ConsoleSettings) -> Feed | None:
    """Return what is to be shown; None for the form of a new run.

    Raises:
        ConfigError: an address, a scenario or a setting cannot be used.
        PortNotOpenError: a run is on, but none has opened its port yet.
        NoRecordError: nothing that can be played lies there.
    """
    if settings.demo is not None:
        ranks = DEFAULT_RANKS if settings.demo_ranks is None else settings.demo_ranks
        return DemoFeed(settings.demo, seed=settings.seed, ranks=ranks)
    if settings.replay is not None:
        check_record(settings.replay)
        return ReplayFeed(settings.replay)
    if settings.attach is not None:
        return _live(settings)
    if settings.job is not None:
        return None
    try:
        return _live(settings)
    except NoLiveRunError:
        return None


async def launch_run(review: FormReview, *, is_read_only: bool = False) -> Feed:
    """Start a run and return a feed of it.

    Args:
        review: what the form says, and all is well with it.
        is_read_only: whether nothing may be asked of the run once it is there.

    Raises:
        LaunchFailedError: the child ended; the text holds its own words.
        LaunchSlowError: its port is not open in time.
        ConfigError: the run's directory cannot be written.
        PortNotOpenError: the run's address is not there.
    """
    launched = await start_headless(review.words, Path(review.run_dir))
    return launched_feed(launched, is_read_only=is_read_only)


def launch_of(settings: ConsoleSettings) -> "partial[Coroutine[None, None, Feed]]":
    """Return what the form starts runs with: the console asks them what it may ask any run."""
    return partial(launch_run, is_read_only=settings.is_read_only)


def _live(settings: ConsoleSettings) -> Feed:
    return find_live_feed(
        settings.attach,
        run_dir=settings.run_dir,
        token_file=settings.token_file,
        config_file=settings.config_file,
        is_read_only=settings.is_read_only,
    )
