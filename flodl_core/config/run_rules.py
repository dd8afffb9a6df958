"""Rules between two settings of a run: ranks, heartbeats, outer steps, commands on events.

What it is: refusals, each with its fix.
What it is not: types and ranges of one setting; those are in `schema`.
Who drives it: `schema` when it builds the table of a run.
"""

import re
from typing import Final

from flodl_core.config.rules import GIVEN
from flodl_core.errors import ConfigError
from flodl_core.ids import InnerState, OuterKind

_INTERFACES: Final = re.compile(r"[\^=]?[\w.@:-]{1,64}(,[\w.@:-]{1,64})*")


def review_ranks(*, ranks: int | None, hosts: int, ranks_per_host: int | None) -> None:
    """Refuse numbers of ranks that contradict each other.

    Raises:
        ConfigError: local ranks are given beside other hosts, or two numbers for one host.
    """
    if ranks is not None and hosts > 1:
        raise ConfigError(
            "ranks",
            ranks,
            f"counts launcher-local ranks, and hosts is {hosts}",
            source=GIVEN,
            fix="use ranks_per_host with hosts",
        )
    if None not in (ranks, ranks_per_host) and ranks != ranks_per_host:
        raise ConfigError(
            "ranks",
            ranks,
            f"contradicts ranks_per_host = {ranks_per_host} on the one host",
            source=GIVEN,
            fix="give one of the two",
        )


def review_heartbeats(*, interval_s: float, timeout_s: float) -> None:
    """Refuse a silence that one late heartbeat would make a death.

    Raises:
        ConfigError: it is shorter than two intervals.
    """
    if timeout_s < 2 * interval_s:
        raise ConfigError(
            "heartbeat_timeout_s",
            timeout_s,
            f"is below two intervals of {interval_s:g} s, so that one late heartbeat would be "
            "a death",
            source=GIVEN,
            fix=f"give at least {2 * interval_s:g}",
        )


def review_outer(
    outer: OuterKind, *, lr: float | None, momentum: float | None, inner: InnerState | None
) -> None:
    """Refuse the settings of an outer step where there is none.

    Raises:
        ConfigError: the average is adopted as it is, and a rate, a momentum or what becomes of
            the ranks' optimizers is given.
    """
    given = {"outer_lr": lr, "outer_momentum": momentum, "inner_state": inner}
    for field, value in given.items():
        if outer is OuterKind.AVG and value is not None:
            raise ConfigError(
                field,
                value,
                "is for an outer optimizer, and outer is avg: the average is adopted as it is",
                source=GIVEN,
                fix="set outer to slowmo or nesterov too, or leave this out",
            )


def review_interface(field: str, text: str | None) -> None:
    """Refuse what NCCL would not take for interfaces.

    Raises:
        ConfigError: it is blank, or holds what no name of an interface does.
    """
    if text is None or _INTERFACES.fullmatch(text):
        return
    raise ConfigError(
        field,
        text,
        "is no interface: a name such as eth0, or several with commas; ^ before them leaves "
        "those out, = takes them to the letter",
        source=GIVEN,
        fix="give one that `ip link` shows",
    )


def review_on_event(*, classes: tuple[str, ...], command: str | None) -> None:
    """Refuse a choice of alerts for a command that is not there.

    Raises:
        ConfigError: classes are given and no command.
    """
    if classes and command is None:
        raise ConfigError(
            "on_event_classes",
            ",".join(classes),
            "chooses alerts for a command that is not set",
            source=GIVEN,
            fix="set on_event too",
        )
