"""Which devices the hosts of a command get, one device a rank.

What it is: the rule from `ranks`, `hosts`, `ranks_per_host` and `devices` to a
list of device names for each host.
What it is not: finding devices; those that exist are an argument.
Who drives it: the launcher for its hosts, an agent for its own.

A CPU device's number only tells the ranks of one host apart; a GPU is never
given to two ranks.
"""

from dataclasses import dataclass

from flodl_core.config.agent_schema import AgentConfig
from flodl_core.config.schema import RunConfig
from flodl_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """The hosts that a command starts, the launcher's own first."""

    devices: tuple[tuple[str, ...], ...]
    """For each host the device of each of its ranks."""

    @property
    def capacity_ranks(self) -> int:
        """Ranks on all hosts together."""
        return sum(len(host) for host in self.devices)


def place_ranks(config: RunConfig, available: tuple[str, ...], *, source: str = "") -> DevicePlan:
    """Give every rank of the launcher's hosts a device; GPUs are dealt out host by host.

    Args:
        config: as loaded.
        available: the devices of this machine, such as `("cuda:0", "cuda:1")`.
        source: where `devices` came from, for the error.

    Raises:
        ConfigError: there are more ranks than devices, or fewer than are named.
    """
    each = config.ranks_per_host if config.ranks is None else config.ranks
    return DevicePlan(
        devices=_deal(config.devices, each, hosts=config.hosts, available=available, source=source)
    )


def place_agent(
    config: AgentConfig, available: tuple[str, ...], *, source: str = ""
) -> tuple[str, ...]:
    """Give every rank of an agent's host a device.

    Raises:
        ConfigError: there are more ranks than devices, or fewer than are named.
    """
    return _deal(config.devices, config.ranks, hosts=1, available=available, source=source)[0]


def host_labels(machine: str, hosts: int) -> tuple[str, ...]:
    """Return the labels of a command's hosts: `machine`, `machine-1`, `machine-2` and so on."""
    return (machine, *(f"{machine}-{i}" for i in range(1, hosts)))


def _deal(
    requested: tuple[str, ...],
    each: int | None,
    *,
    hosts: int,
    available: tuple[str, ...],
    source: str,
) -> tuple[tuple[str, ...], ...]:
    """Return `each` devices for each host; as many as fit if it is None."""
    found = tuple(device for device in available if not device.startswith("cpu"))
    if requested == ("cpu",) or (requested == ("all",) and not found):
        return (tuple(f"cpu:{i}" for i in range(each or 1)),) * hosts
    named = requested not in {("all",), ("cuda",)}
    if named:
        choice = requested
    else:
        choice = tuple(d for d in found if requested == ("all",) or d.startswith("cuda"))
    source = source or "resolved"
    missing = [d for d in choice if not d.startswith("cpu:") and d not in found]
    if missing or not choice:
        raise ConfigError(
            "devices",
            ",".join(requested),
            f"this machine has {', '.join(found) or 'no GPU'}",
            source=source,
            fix="give devices that it has, or cpu",
        )
    per_host = each or max(1, len(choice) // hosts)
    wanted = per_host * hosts
    if wanted > len(choice) or (named and wanted < len(choice)):
        raise ConfigError(
            "devices",
            ",".join(requested),
            f"{wanted} ranks were asked for, and the devices for them are {', '.join(choice)}; "
            "a rank has one device of its own",
            source=source,
            fix="name one device a rank, or give cpu for ranks that share the processor",
        )
    return tuple(choice[i : i + per_host] for i in range(0, wanted, per_host))
