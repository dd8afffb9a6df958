"""How a host is reached: a command whose standard input and output lead to it.

    ssh    the system's own, one session a host, its configuration honoured
    slurm  one step of srun a host, inside an allocation or each in one of its own
    ray    an actor of a running Ray, behind a bridge (`ray_bridge`)

What it is: one small protocol, `Road`, and a class each that composes words. Whatever the
road, a process of ours at its end (`roles.placed`) holds the dialog.
What it is not: a process (`session`), nor hosts of the launcher's own machine
(`roles.local_hosts`), nor manifests (`kubernetes`).
Who drives it: `roles.placing` makes them, `session` runs what they compose.
"""

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from flodl_core.config.workers import WorkerConfig
from flodl_core.net.children import python_command

PLACED_MODULE: Final = "flodl_core.roles.placed"
BRIDGE_MODULE: Final = "flodl_core.placement.ray_bridge"

_FIRST_PORT, _PORTS = 20_000, 12_000
"""Where the far end of a tunnel is tried; below what systems use for outgoing connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHost:
    """One host to be started."""

    label: str
    worker: WorkerConfig
    """What it brings, and where things are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """One way to a host: the command, and the launcher's address as the host dials it."""

    command: tuple[str, ...]
    controller: str


class Road(Protocol):
    """How hosts of one kind are reached."""

    @property
    def name(self) -> str:
        """The kind, as it is configured."""

    @property
    def attempts(self) -> int:
        """How often an approach that ended before its report is made anew."""

    def approach(self, host: PlacedHost) -> Approach:
        """Return a way to a host; another one each time where there is more than one."""

    def fix(self, host: PlacedHost) -> str:
        """Return what to try where the way leads nowhere."""


class SshRoad:
    """The system's ssh.

    Args:
        port: that the launcher listens on.
        address: `host:port` that the hosts dial; None digs a tunnel for each, through which
            they reach a launcher that listens on loopback only.
    """

    name = "ssh"

    def __init__(self, port: int, *, address: str | None) -> None:
        self._port = port
        self._address = address
        self.attempts = 3 if address is None else 1

    def approach(self, host: PlacedHost) -> Approach:
        """Return the words of ssh; a tunnel's far end is drawn anew each time."""
        words = ["ssh", "-T", "-a", "-x", "-S", "none"]
        for option in (
            "BatchMode=yes",
            "ConnectTimeout=10",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
        ):
            words += ["-o", option]
        controller = self._address
        if controller is None:
            far = _FIRST_PORT + secrets.randbelow(_PORTS)
            controller = f"127.0.0.1:{far}"
            words += ["-o", "ExitOnForwardFailure=yes"]
            words += ["-R", f"127.0.0.1:{far}:127.0.0.1:{self._port}"]
        words += [host.worker.destination, remote_command(host)]
        return Approach(command=tuple(words), controller=controller)

    def fix(self, host: PlacedHost) -> str:
        """Return the same command, for a person."""
        word = shlex.join(["ssh", "-o", "BatchMode=yes", host.worker.destination, "true"])
        return f"make `{word}` work first, and see that flodl is installed there"


class SlurmRoad:
    """One step of srun a host.

    Args:
        address: `host:port` that the nodes dial.
        nodes: names of the allocation's nodes by label; a host without one gets an
            allocation of its own.
    """

    name = "slurm"
    attempts = 1

    def __init__(self, address: str, *, nodes: dict[str, str]) -> None:
        self._address = address
        self._nodes = nodes

    def approach(self, host: PlacedHost) -> Approach:
        """Return the words of srun; partition, account and time come from SLURM_ variables."""
        words = ["srun", "--nodes=1", "--ntasks=1", "--unbuffered", "--kill-on-bad-exit=1"]
        words += [f"--job-name=flodl-{host.label}"]
        node = self._nodes.get(host.label)
        if node is not None:
            words += ["--overlap", f"--nodelist={node}"]
        return Approach(command=(*words, *placed_words(host)), controller=self._address)

    def fix(self, host: PlacedHost) -> str:
        """Return where Slurm says more."""
        return f"look at `sinfo` and `squeue`, and whether `srun {host.worker.python} -V` works"


class RayRoad:
    """An actor of a running Ray.

    Args:
        address: `host:port` that the actors dial.
    """

    name = "ray"
    attempts = 1

    def __init__(self, address: str) -> None:
        self._address = address

    def approach(self, host: PlacedHost) -> Approach:
        """Return the bridge's words; the cluster is the one that RAY_ADDRESS names."""
        worker = host.worker
        gpus = sum(device.startswith("cuda:") for device in worker.devices)
        if worker.devices == ("cuda",):
            gpus = worker.ranks or 1
        words = python_command(BRIDGE_MODULE, "--host", host.label, "--gpus", str(gpus))
        return Approach(command=tuple(words), controller=self._address)

    def fix(self, host: PlacedHost) -> str:
        """Return how a Ray is started and named."""
        return (
            "install flodl[ray] here and on every node, start Ray with `ray start --head`, set "
            f"RAY_ADDRESS if it is not on this machine, and see that it has room for {host.label}"
        )


def placed_words(host: PlacedHost) -> tuple[str, ...]:
    """Return the words that start the placed process on its host."""
    return (host.worker.python, "-P", "-m", PLACED_MODULE, "--host", host.label)


def remote_command(host: PlacedHost) -> str:
    """Return one line for a login shell; the process itself goes to its directory."""
    python, *rest = placed_words(host)
    return f"exec {_path_word(python)} {shlex.join(rest)}"


def allocated_nodes(listed: Sequence[str], own: str) -> tuple[str, ...]:
    """Return the nodes of an allocation beside the one that the launcher runs on.

    Args:
        listed: names of all its nodes.
        own: this machine's name, with or without its domain.
    """
    short = own.partition(".")[0]
    return tuple(node for node in listed if node not in (own, short))


def _path_word(path: str) -> str:
    """Return a path as a word of a shell; a leading `~/` stays what it means there."""
    if path.startswith("~/"):
        return f"~/{shlex.quote(path[2:])}"
    return shlex.quote(path)
