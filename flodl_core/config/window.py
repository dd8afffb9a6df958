"""The join window's numbers, once the number of configured ranks is known.

What it is: one frozen record, and the rule that makes it from `JoinConfig`.
What it is not: the window itself, which is `flodl_core.membership`.
Who drives it: the launcher resolves it once, before it opens the window.
"""

from dataclasses import dataclass

from flodl_core.config.addresses import is_loopback_address, is_private_or_local, is_wildcard
from flodl_core.config.schema import MIN_QUORUM, JoinConfig
from flodl_core.errors import ConfigError
from flodl_core.ids import StartMode
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """When the window closes and who closes it; every number is concrete."""

    min_rank_start: int
    """Quorum in ranks, at least 2."""
    target_ranks: int | None
    """Closes the window when reached; None waits for the clock or the operator."""
    join_timeout_s: Seconds
    max_join_timeout_s: Seconds
    """At least `join_timeout_s`."""
    start_mode: StartMode


def resolve_join(config: JoinConfig, capacity_ranks: int | None) -> WindowConfig:
    """Fill in what depends on the configured capacity.

    Quorum: what is set; else in auto the capacity (2 where that is below 2), 2
    in manual and hybrid. Target: what is set; else in auto and hybrid the
    capacity, unless it cannot meet the quorum by itself: then hosts must dial
    in, and how many is not known.

    Args:
        config: as loaded.
        capacity_ranks: ranks that this command starts itself, on all its hosts;
            None or 0 if every rank dials in.

    Raises:
        ConfigError: an explicit target is below the quorum that the capacity gives.
    """
    capacity = capacity_ranks or 0
    if config.min_rank_start is not None:
        quorum = config.min_rank_start
    elif config.start_mode is StartMode.AUTO:
        quorum = max(capacity, MIN_QUORUM)
    else:
        quorum = MIN_QUORUM
    if config.target_ranks is not None and config.target_ranks < quorum:
        raise ConfigError(
            "target_ranks",
            config.target_ranks,
            f"the target is below the quorum of {quorum} ranks that this command starts",
            source="resolved",
            fix=f"give at least {quorum}, or set min_rank_start",
        )
    target = config.target_ranks
    if target is None and config.start_mode is not StartMode.MANUAL and capacity >= quorum:
        target = capacity
    return WindowConfig(
        min_rank_start=quorum,
        target_ranks=target,
        join_timeout_s=config.join_timeout_s,
        max_join_timeout_s=config.cap_s,
        start_mode=config.start_mode,
    )


def trains_solo(config: JoinConfig, *, local_ranks: int, hosts: int) -> bool:
    """Return whether one local rank trains alone, without a window.

    Args:
        config: as loaded.
        local_ranks: ranks of the launcher's own host.
        hosts: hosts that this command starts, its own included.
    """
    return (
        local_ranks == 1
        and hosts == 1
        and config.start_mode is StartMode.AUTO
        and config.min_rank_start is None
        and config.target_ranks is None
        and is_loopback_address(config.bind)
    )


def join_warnings(config: JoinConfig) -> tuple[str, ...]:
    """Return what the operator must be told before the port listens."""
    if is_loopback_address(config.bind):
        return ()
    warnings = []
    if config.open_admission:
        certain = "" if config.tls else "; keys resist listeners, not an active man in the middle"
        warnings.append(
            f"open_admission: anyone who reaches {config.bind} may join this run without a "
            f"token{certain}"
        )
    if not (config.tls or is_wildcard(config.bind) or is_private_or_local(config.bind)):
        warnings.append(
            f"bind {config.bind} is no private address and tls is not set: HTTP with its operator "
            "token goes over the network in the clear; set --tls"
        )
    return tuple(warnings)
