"""Who holds a port that we cannot bind: asked over HTTP, because a run of ours answers there.

Used for one error text only. Whatever answers is not trusted: its run id is shown
only if it looks like one.
"""

import re
from typing import Final

import httpx

from flodl_core.net.addresses import join_host_port
from flodl_core.units import Seconds

ASK_S: Final = 1.0

_RUN_ID: Final = re.compile(r"[0-9a-f]{16}")
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound


def describe_owner(bind: str, port: int, *, ask_s: Seconds = ASK_S) -> str:
    """Return who listens there: `run 0123456789abcdef`, or `another program`."""
    run_id = run_id_at(_WILDCARDS.get(bind, bind), port, ask_s=ask_s)
    return "another program" if run_id is None else f"run {run_id}"


def run_id_at(host: str, port: int, *, ask_s: Seconds = ASK_S) -> str | None:
    """Return the id of the run whose launcher answers at `host:port`, if one does."""
    url = f"http://{join_host_port(host, port)}/state.json"
    try:
        with httpx.Client(timeout=ask_s, trust_env=False) as client:
            document = client.get(url).json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    run = document.get("run") if isinstance(document, dict) else None
    run_id = run.get("id") if isinstance(run, dict) else None
    return run_id if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) else None
