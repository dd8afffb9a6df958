"""Why a window closed without a world, in words that help.

What it is: the texts of `FailWindow` and the errors that carry them.
What it is not: the rule that failed it (`window`).
Who drives it: the ledger composes, the launcher raises `window_error`.
"""

from collections.abc import Mapping, Sequence

from flodl_core.config.window import WindowConfig
from flodl_core.errors import WindowFailedError
from flodl_core.ids import HostName
from flodl_core.membership.admission import escaped
from flodl_core.membership.events import FailWindow
from flodl_core.membership.roster import Member, count_ranks
from flodl_core.units import Seconds

ABORTED = "aborted"
NO_START = "operator start not received"


class QuorumNotMetError(WindowFailedError):
    """Too few ranks joined before the hard cap."""


class StartNotReceivedError(WindowFailedError):
    """Quorum was met, and the operator never started the run."""


class JoinAbortedError(WindowFailedError):
    """The run was ended before a world formed."""


def window_error(effect: FailWindow) -> WindowFailedError:
    """Return the error that a failed window ends with."""
    kinds = {NO_START: StartNotReceivedError, ABORTED: JoinAbortedError}
    return kinds.get(effect.reason, QuorumNotMetError)(effect.detail, fix=effect.fix)


def describe_failure(
    reason: str,
    waited_s: Seconds,
    members: Sequence[Member],
    *,
    config: WindowConfig,
    configured_hosts: Sequence[HostName],
    unseated: Mapping[HostName, str],
) -> FailWindow:
    """Return the effect for a window that failed.

    Args:
        reason: the verdict's.
        waited_s: since the window opened.
        members: who is in and waits.
        config: the window's numbers.
        configured_hosts: labels of the hosts that should have come.
        unseated: hosts that came and are not in, with what became of them.
    """
    joined, quorum = count_ranks(members), config.min_rank_start
    waited = _rounded(waited_s)
    seated = {member.host for member in members}
    silent = [host for host in configured_hosts if host not in seated and host not in unseated]
    facts = [
        _listed("Waiting hosts", [_with_devices(member) for member in members]),
        _listed("Never heard from", [escaped(host) for host in silent]),
        _listed(
            "Not in",
            [f"{escaped(host)} ({why})" for host, why in unseated.items() if host not in seated],
        ),
    ]
    if reason == NO_START:
        ranks = f"{joined} {'rank' if joined == 1 else 'ranks'}"
        head = f"{ranks} waited {waited} s for the operator's start, and it did not come."
        fix = "run `flodl start` once the hosts are in, or use start mode hybrid"
    else:
        head = f"{joined} of {quorum} ranks joined in {waited} s, so the run did not start."
        absent = escaped(silent[0]) if silent else "another host"
        fix = f"start the agent on {absent}, or lower join.min_rank_start"
        if quorum <= 2 and not silent:
            fix = f"start the agent on {absent}, or give join.max_join_timeout_s more time"
    detail = "\n  ".join([head, " ".join(fact for fact in facts if fact)]).rstrip()
    return FailWindow(reason=reason, detail=detail, fix=fix)


def describe_abort(why: str, waited_s: Seconds, members: Sequence[Member]) -> FailWindow:
    """Return the effect for a window that was ended from outside."""
    joined = count_ranks(members)
    ranks = f"{joined} {'rank' if joined == 1 else 'ranks'}"
    detail = f"the run was aborted after {_rounded(waited_s)} s with {ranks} in: {why}"
    return FailWindow(reason=ABORTED, detail=detail, fix="launch the run again")


def _rounded(seconds: Seconds) -> str:
    """Return seconds to a tenth; a wait is never known better to those who waited."""
    return f"{round(seconds, 1):g}"


def _listed(title: str, names: Sequence[str]) -> str:
    return f"{title}: {', '.join(names)}." if names else ""


def _with_devices(member: Member) -> str:
    count = member.count
    return f"{escaped(member.host)} ({count} {'device' if count == 1 else 'devices'})"
