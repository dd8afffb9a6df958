"""Rendezvous channel: rank ⇄ coordinator, once, before cycle 0."""

from enum import StrEnum

from flodl_core.ids import HostName, Rank
from flodl_core.messages.registry import message


class RoleKind(StrEnum):
    """Who makes the communicator's uid."""

    GENERATE = "generate"
    WAIT = "wait"


@message(32)
class RendezvousHello:
    """Rank → coordinator: I am here."""

    dataset_sig: str
    global_rank: Rank
    host_name: HostName
    resume_note: str | None = None
    """Why this rank of a resumed run begins with a fresh optimizer: the file and what is wrong."""


@message(33)
class Role:
    """Coordinator → rank: make the uid, or wait for it."""

    role: RoleKind


@message(34)
class Uid:
    """Generator → coordinator → waiters. 128 bytes; random and unused on the CPU plane."""

    uid: bytes
