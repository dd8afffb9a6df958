"""`flodl join HOST:PORT`: bring this host's devices into a run.

What it is: settings in, the agent until the run has ended, its exit code.
What it is not: the agent, which is a role.
Who drives it: `index`; a launcher that starts further hosts on its own machine.
"""

import os
import stat
from typing import Annotated

import typer

from flodl_core.cli.options import (
    AGENT_TABLES,
    ConfigFile,
    Flags,
    Verbose,
    setting_keys,
    with_settings,
)


@with_settings(setting_keys(AGENT_TABLES))
def command(
    flags: Flags,
    controller: Annotated[
        str | None,
        typer.Argument(
            metavar="HOST:PORT",
            help="Where the run listens. [default: 127.0.0.1:1337]",
            show_default=False,
        ),
    ] = None,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Bring this host's devices into the run at HOST:PORT and stay until it has ended.

    The token is read from --token-file or FLODL_TOKEN, never from the words of
    the command, which everybody on this machine can read. Exit codes: 0 the run
    is over, 3 refused for good, 6 try again later, 7 the run was lost; with
    --persist only a signal ends it.
    """
    from flodl_core.cli.lines import write_line
    from flodl_core.cli.patient_streams import patient_streams
    from flodl_core.config.load import load_agent

    tie_if_child()
    given = {**flags, "controller": controller}
    loaded = load_agent(given, config_file=config_file)
    import functools

    import anyio

    from flodl_core.net.dial import DialPolicy
    from flodl_core.roles.agent import Agent
    from flodl_core.roles.persist import persist
    from flodl_core.telemetry.line_file import show_untrusted

    def say(line: str) -> None:
        write_line(show_untrusted(line))

    def make_agent() -> Agent:
        now_loaded = load_agent(given, config_file=config_file)
        return Agent(now_loaded, say, is_verbose=is_verbose, patience=DialPolicy(attempts=1))

    loop = functools.partial(persist, make_agent, say=say, scale=loaded.net.timeout_scale)
    with patient_streams():
        if not loaded.agent.persist:
            return int(anyio.run(Agent(loaded, say, is_verbose=is_verbose).run, backend="asyncio"))
        anyio.run(loop, backend="asyncio")
    return 0


def tie_if_child() -> None:
    """End with the parent, where a process of flodl started this very one.

    A command that a job starts has inherited the variables but not the pipe.
    """
    from flodl_core.net.children import own_environment
    from flodl_core.net.parent_tie import LIVENESS_FD_VARIABLE, tie_from_environment

    environ = own_environment()
    if _is_pipe(environ.get(LIVENESS_FD_VARIABLE, "")):
        tie_from_environment(environ)


def _is_pipe(descriptor: str) -> bool:
    try:
        return descriptor.isdecimal() and stat.S_ISFIFO(os.fstat(int(descriptor)).st_mode)
    except OSError:
        return False
