"""The root of the star: the controller's CPU reduce, in the launcher.

```
local Ready marks ┐
                  ├─▶ barrier ─▶ control sum ─▶ params buckets ─▶ buffers buckets ─▶ next cycle
host buckets ─────┘   each round: RoundEnded to the coordinator first, then RoundEnd to everybody
```

The launcher's own ranks are host number 0 and have no relay: their slots are folded
here. A bucket is Σ mass·x over hosts in order, divided once by the mass accepted for
it, then stepped where the run has an outer optimizer. A host whose link breaks is out
of the buckets that follow and of `ranks_accepted`; a death frees the barrier at once.

One thread of its own waits, folds and sends; links and the event loop post to it.
Driven by the launcher. It decides nothing about training: which cycle runs is the
ranks' marks, what a round's end means is the coordinator's.
"""

import socket
import threading
from collections.abc import Callable, Mapping

from flodl_core.coordinator.events import RoundEnded
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import HostName, Rank, WireDtype
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.job import Envelope
from flodl_core.messages.mux import RelayDeclareDead
from flodl_core.planes.consensus import Beginning, CommittedView, Consensus
from flodl_core.planes.event_loop import PlaneLoop
from flodl_core.planes.link import BucketLink
from flodl_core.planes.local_group import LocalGroup, NoteSink
from flodl_core.planes.root_cycle import RootCycles, RootStopped
from flodl_core.planes.staging import Staging
from flodl_core.planes.velocity import BroughtVelocity, Velocity
from flodl_core.planes.worker_hosts import WorkerHosts
from flodl_core.reduce.outer import rule_of
from flodl_core.relay.machine import RelayMachine
from flodl_core.units import BUCKET_BYTES, Seconds

STOP_TIMEOUT_S: Seconds = 10.0

_FOREVER = float("inf")


class StarRoot:
    """The controller's data plane.

    Attributes:
        staging: both sides of the consensus, shared with the launcher's own ranks.
    """

    def __init__(
        self,
        envelope: Envelope,
        local_socks: Mapping[Rank, socket.socket],
        on_round_ended: Callable[[RoundEnded], None],
        *,
        on_failed: Callable[[BaseException], None] | None = None,
        on_note: NoteSink | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        """Take the sockets and begin.

        Args:
            envelope: of the run.
            local_socks: the launcher's end of each own rank's DATA socketpair; owned from here on.
            on_round_ended: told of each round's end, in the root's thread, before any rank is.
            on_failed: told, in the root's thread, of an error that ended the root.
            on_note: told what was not acted on, and of ranks and hosts that were refused.
            beginning: what a resumed run begins with: the initial broadcast brings its regions to
                everybody; None if rank 0 has what all begin with.

        Raises:
            LocalProtocolError: the sockets are not those of one host's ranks.
        """
        local = _local_host(envelope, local_socks)
        self._on_failed = on_failed
        self.staging = Staging.create(
            envelope.geometry,
            envelope.world_size,
            sides=2,
            wire=WireDtype(envelope.spec.wire_dtype),
        )
        self._loop = PlaneLoop()
        begins = beginning or Beginning()
        self._consensus = Consensus(
            self.staging,
            envelope.geometry,
            on_unpinned=self._loop.wake,
            velocity=_velocity(envelope, begins),
        )
        self._peers = WorkerHosts(
            (one for one in envelope.hosts if one.host != local),
            bucket_bytes=_largest_bucket(envelope, self.staging),
            on_arrival=self._loop.wake,
        )
        self._group: LocalGroup | None = None
        if local_socks:
            machine = RelayMachine(
                sorted(local_socks),
                has_buffers=envelope.geometry.buffers_numel > 0,
                drain_ceiling_s=_FOREVER,
            )
            self._group = LocalGroup(
                self._loop,
                envelope.geometry,
                self.staging,
                machine=machine,
                world_size=envelope.world_size,
                on_note=on_note,
            )
            self._group.open(local_socks)
        self._cycles = RootCycles(
            envelope,
            self._loop,
            self._consensus,
            peers=self._peers,
            group=self._group,
            reports=(on_round_ended, on_note),
        )
        self._cycles.begin_with(begins.regions)
        if envelope.spec.mode.uses_nccl and begins.outer is not None:
            self._cycles.give_velocity(begins.outer.velocity)
        self._thread = threading.Thread(target=self._run, name="flodl-root-plane", daemon=True)
        self._thread.start()

    def attach_host(self, host: HostName, link: BucketLink) -> None:
        """Give a worker host its link, once, before its first bucket; from any thread.

        Raises:
            LocalProtocolError: no such worker host, or it is attached already.
        """
        self._peers.attach(host, link)
        self._loop.wake()

    def on_bucket_begin(self, host: HostName, frame: BucketFrame) -> memoryview:
        """Return the place for the values of a bucket from `host`; in its link's thread.

        Raises:
            RemoteProtocolError: the host is not part of the run now, or sends too much.
        """
        return self._peers.port_of(host).begin(frame)

    def on_bucket(self, host: HostName, frame: BucketFrame) -> None:
        """Take a bucket of `host` whose values are in their place; in its link's thread.

        Raises:
            RemoteProtocolError: the host is not part of the run now, or sends too much.
        """
        self._peers.port_of(host).complete(frame)

    def declare_dead(self, rank: Rank) -> None:
        """Stop waiting for a rank, and tell its relay; from any thread, more than once."""
        self._loop.post(lambda: self._declare_dead(rank))

    def drop_host(self, host: HostName) -> None:
        """Go on without a host whose link ended; from any thread, more than once."""
        self._loop.post(lambda: self._drop_host(host))

    def begin_save(self, version: int) -> CommittedView | None:
        """Hold the committed values of `version` still, for a save; from any thread.

        Returns:
            The values of the last whole commit that is not later than `version`; None if a later
            cycle has committed already, or none has. The root waits before it writes over them,
            so they are to be released as soon as the save is done.
        """
        return self._consensus.begin_save(version)

    @property
    def committed_version(self) -> int | None:
        """The last cycle that committed as a whole; None before the first."""
        return self._consensus.version

    @property
    def moved_bytes(self) -> int:
        """Bytes of values that came from and went to worker hosts so far."""
        return self._cycles.moved_bytes

    def stop(self) -> None:
        """End the root's thread and give its memory and sockets back; views of saves stay valid."""
        self._cycles.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)

    def _declare_dead(self, rank: Rank) -> None:
        peer = self._peers.of_rank(rank)
        if peer is None:
            if self._group is not None:
                self._group.declare_dead(rank)
            return
        if rank in peer.alive:
            peer.alive.discard(rank)
            peer.send(RelayDeclareDead(rank=rank))

    def _drop_host(self, host: HostName) -> None:
        peer = self._peers.named(host)
        if peer is not None:
            peer.drop()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._cycles.run()
        except RootStopped:
            pass
        except Exception as error:  # reported by on_failed, whatever it is
            failure = error
        if self._group is not None:
            self._group.close()
        self._loop.close()
        self._consensus.close()
        self.staging.close()
        if failure is not None and self._on_failed is not None:
            self._on_failed(failure)


def _local_host(envelope: Envelope, socks: Mapping[Rank, socket.socket]) -> HostName | None:
    """Return the host whose ranks the sockets are; None if there are none."""
    if not socks:
        return None
    for roster in envelope.hosts:
        if set(roster.ranks) == set(socks):
            return roster.host
    raise LocalProtocolError(
        f"the root was given sockets of ranks {sorted(socks)}, expected all ranks of one host of "
        f"{[list(one.ranks) for one in envelope.hosts]}"
    )


def _velocity(envelope: Envelope, begins: Beginning) -> Velocity | None:
    """Return the outer optimizer's memory, if the run has one that keeps any."""
    if not rule_of(envelope.spec.outer).has_velocity:
        return None
    kind = BroughtVelocity if envelope.spec.mode.uses_nccl else Velocity
    return kind(envelope.geometry, begins.outer)


def _largest_bucket(envelope: Envelope, staging: Staging) -> int:
    values = max(envelope.geometry.params_numel, envelope.geometry.buffers_numel)
    return max(staging.control.nbytes, min(BUCKET_BYTES, values * 4))
