"""What a confirm box says will happen, in numbers.

What it is: the consequences of each action, worked out from the status document.
What it is not: the decision whether an action is offered; `view.actions` has the rules.
Who drives it: `view.actions`.
"""

from flodl_console.view.facts import OPEN_PHASES, alive_ranks, place_of
from flodl_console.view.formats import age_at, count, duration, percent, plural, ratio
from flodl_console.view.texts import clean, listed, says
from flodl_core.telemetry.state import StateDocument

MAX_TYPED_CHARS = 40


def typed_name_of(document: StateDocument) -> str:
    """Return what must be typed to stop the run: its name, or its id where that is not typeable."""
    name = document.run.name.strip()
    is_typeable = name.isascii() and name.isprintable() and 0 < len(name) <= MAX_TYPED_CHARS
    return name if is_typeable else clean(document.run.id)


def start_lines(document: StateDocument) -> tuple[str, ...]:
    """Return what a start does, at most 5 lines."""
    joined = document.joined_ranks
    target = document.target_ranks
    of = f" of {target}" if target and target > joined else ""
    hosts = plural(document.joined_hosts, "host")
    lines = [f"Start with {joined}{of} {'rank' if joined == 1 else 'ranks'} on {hosts}."]
    if document.expected_hosts:
        missing = [clean(host) for host in document.expected_hosts]
        lines.append(f"Not heard from: {listed(missing, 48)}.")
    lines.append("Later hosts cannot join this run.")
    return tuple(lines)


def stop_save_lines(document: StateDocument) -> tuple[str, ...]:
    """Return what stop and save does, at most 5 lines."""
    if document.phase in OPEN_PHASES:
        return _window_ends(document)
    alive = plural(len(alive_ranks(document)), "rank")
    return (
        f"The window under way ends; what {alive} did is averaged and saved.",
        *_not_trained(document),
        "The run ends with exit code 4; nothing that is committed is lost.",
    )


def stop_now_lines(document: StateDocument) -> tuple[str, ...]:
    """Return what stop now does, at most 5 lines."""
    if document.phase in OPEN_PHASES:
        return _window_ends(document)
    return (
        f"{plural(len(alive_ranks(document)), 'rank')} end at once.",
        _lost_since(document),
        *_not_trained(document),
        "The run ends with exit code 5.",
    )


def drain_lines(document: StateDocument, host: str) -> tuple[str, ...]:
    """Return what draining a host does, at most 5 lines."""
    alive = alive_ranks(document)
    leaving = [rank for rank in alive if rank.host == host]
    stay = _staying(len(alive) - len(leaving), len(alive))
    return (
        f"{plural(len(leaving), 'rank')} of {says(host, 24)} leave after the next average.",
        "They bring what they have done and hand back the rest.",
        stay,
        "The host cannot join this run again.",
    )


def evict_lines(document: StateDocument, rank: int) -> tuple[str, ...]:
    """Return what evicting a rank does, at most 5 lines."""
    alive = alive_ranks(document)
    hosts = {one.rank: one.host for one in alive}
    return (
        f"{place_of(rank, hosts.get(rank))} is killed.",
        "Its batches since the last commit are done again by the others.",
        _staying(len(alive) - 1, len(alive)),
        "It cannot come back into this run.",
    )


def _staying(left: int, alive: int) -> str:
    return f"{left} of {plural(alive, 'rank')} {'goes' if left == 1 else 'go'} on."


def _window_ends(document: StateDocument) -> tuple[str, ...]:
    return (
        "The window closes and no world is formed: nothing was trained.",
        f"{plural(document.joined_hosts, 'host')} that joined are sent away.",
        "The run ends with exit code 3.",
    )


def _not_trained(document: StateDocument) -> tuple[str, ...]:
    training = document.training
    if training is None or training.samples_total <= 0:
        return ()
    left = max(0, training.samples_total - training.samples_done)
    done = percent(ratio(training.samples_done, training.samples_total))
    return (f"{done} is trained; {count(left)} samples are not.",)


def _lost_since(document: StateDocument) -> str:
    checkpoint = document.checkpoint
    if checkpoint is None or checkpoint.path is None:
        return "Nothing has been saved yet: everything trained is lost."
    version = "" if checkpoint.version is None else f" version {count(checkpoint.version)}"
    age_s = age_at(document.run.uptime_s, checkpoint.uptime_s)
    ago = "" if age_s is None else f" (saved {duration(age_s)} ago)"
    return f"What came after{version or ' the last save'}{ago} is lost."
