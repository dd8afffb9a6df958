"""The bootstrap: every rank says Hello, one makes the uid, the others receive it.

What it is: who has been heard, who generates, and the ceiling that restarts with
each Hello. The generator is the lowest rank of the launcher's own host, else rank 0.
What it is not: admission; the world is final before it begins.
Who drives it: the coordinator, until the uid is out.

    GATHERING ──all said Hello──▶ GENERATING ──Uid──▶ DONE
                                   └ the generator died: the next one is asked
"""

from enum import StrEnum

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.coordinator.cohort import Cohort, RankLife, RankRecord
from flodl_core.coordinator.effects import Effect, Send
from flodl_core.ids import Rank, RankPhase
from flodl_core.machines import Note
from flodl_core.messages.rendezvous import RendezvousHello, Role, RoleKind, Uid
from flodl_core.units import Seconds

UID_BYTES = 128


class RendezvousPhase(StrEnum):
    """How far the bootstrap is."""

    GATHERING = "gathering"
    GENERATING = "generating"
    DONE = "done"


class Rendezvous:
    """The bootstrap of one world."""

    def __init__(
        self, cohort: Cohort, *, local_ranks: tuple[Rank, ...], timeout_s: Seconds
    ) -> None:
        self._cohort = cohort
        self._local_ranks = local_ranks
        self._timeout_s = timeout_s
        self._since: Seconds | None = None
        self.phase = RendezvousPhase.GATHERING
        self.generator: Rank | None = None

    def open(self, now: Seconds) -> None:
        """The coordinator was driven for the first time: waiting begins."""
        if self._since is None:
            self._since = now

    @property
    def ceiling(self) -> Ceiling | None:
        """The wait for the next Hello or for the uid; None once the bootstrap is done."""
        if self._since is None or self.phase is RendezvousPhase.DONE:
            return None
        return Ceiling(self._since, self._timeout_s)

    @property
    def missing(self) -> tuple[RankRecord, ...]:
        """The ranks that have not said Hello."""
        return tuple(record for record in self._cohort if record.life is RankLife.EXPECTED)

    def describe_missing(self) -> str:
        """Who is missing, by rank and host, or who owes the uid."""
        if self.phase is RendezvousPhase.GENERATING:
            return f"rank {self.generator} has not sent the uid"
        hosts: dict[str, list[str]] = {}
        for record in self.missing:
            hosts.setdefault(record.host, []).append(str(record.rank))
        listed = "; ".join(
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)} on {host}"
            for host, ranks in hosts.items()
        )
        return f"never heard from: {listed}"

    def hear(self, record: RankRecord, hello: RendezvousHello, now: Seconds) -> list[Effect]:
        """Take a Hello whose signature was found right."""
        if record.life is not RankLife.EXPECTED or hello.global_rank != record.rank:
            return [Note(code="hello_out_of_place", fields={"rank": record.rank})]
        self._cohort.set_life(record, RankLife.ALIVE)
        record.phase = RankPhase.WAITING
        self._since = now
        return self.review(now)

    def review(self, now: Seconds) -> list[Effect]:
        """Give out the roles if all ranks are in, or name another generator if it died."""
        if self.phase is RendezvousPhase.DONE or self.missing:
            return []
        alive = self._cohort.alive_ranks
        if not alive or self.generator in alive:
            return []
        first = self.phase is RendezvousPhase.GATHERING
        local = [rank for rank in self._local_ranks if rank in alive]
        self.generator = min(local or alive)
        self.phase = RendezvousPhase.GENERATING
        self._since = now
        generate: Effect = Send(self.generator, Role(role=RoleKind.GENERATE))
        if not first:
            return [generate]
        waiters = (rank for rank in alive if rank != self.generator)
        return [generate, *(Send(rank, Role(role=RoleKind.WAIT)) for rank in waiters)]

    def take_uid(self, rank: Rank, uid: Uid) -> list[Effect]:
        """Pass the generator's uid on; the bootstrap is done then."""
        if self.phase is not RendezvousPhase.GENERATING or rank != self.generator:
            return [Note(code="uid_out_of_place", fields={"rank": rank})]
        if len(uid.uid) != UID_BYTES:
            return [Note(code="uid_of_wrong_size", fields={"rank": rank, "bytes": len(uid.uid)})]
        self.phase = RendezvousPhase.DONE
        return [Send(other, uid) for other in self._cohort.alive_ranks if other != rank]
