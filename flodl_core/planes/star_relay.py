"""The relay's half of the star: one host's ranks below, the root above.

```
Ready marks ─▶ RelayMachine ─▶ ShipRound ─▶ fold slots bucket by bucket ─▶ link
ranks ◀─ RoundEnd ◀─ FanOut ◀─ RelayMachine ◀─ RoundEnd, after its buckets ◀─ link
                                      values land in the staging segment ◀─┘
```

One thread of its own folds, waits and fans out. The link's receiver thread only
places values and posts. Control frames of the ranks do not pass here. Driven by the
relay process, which routes its link's callbacks to `on_bucket_begin`, `on_bucket`,
`on_message` and `on_link_closed`, and learns of the end through `on_ended`.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from flodl_core.errors import FlodlError, LocalProtocolError
from flodl_core.ids import HostName, Rank, Round, RoundOutcome, WireDtype
from flodl_core.messages.data import BucketFrame, RoundEnd
from flodl_core.messages.job import Envelope
from flodl_core.messages.mux import RelayDeclareDead
from flodl_core.net.mux_outbox import LinkClosedError
from flodl_core.planes.event_loop import PlaneLoop
from flodl_core.planes.incoming import IncomingControl, IncomingRound, unexpected_bucket
from flodl_core.planes.landing import DifferenceLanding, DirectLanding, Landing
from flodl_core.planes.link import BucketLink
from flodl_core.planes.local_group import LocalGroup, NoteSink
from flodl_core.planes.round_plan import (
    MAX_AHEAD,
    Gather,
    RoundPlan,
    control_frame,
    is_contiguous,
    plan_buffers,
    plan_params,
)
from flodl_core.planes.segment import BF16, F32
from flodl_core.planes.staging import Staging
from flodl_core.reduce.buckets import bucket_values
from flodl_core.reduce.fold import Fold
from flodl_core.reduce.narrow import Narrow
from flodl_core.relay.machine import (
    FanOut,
    RelayMachine,
    RoundEndReceived,
    ShipRound,
    UpstreamClosed,
)
from flodl_core.units import Seconds

STOP_TIMEOUT_S: Seconds = 5.0


class _Ended(Exception):
    """The machine ended while a round was under way."""


class StarRelay:
    """The data plane of one worker host.

    Attributes:
        staging: where the consensus lands.
    """

    def __init__(
        self,
        envelope: Envelope,
        host: HostName,
        data_socks: Mapping[Rank, socket.socket],
        link: BucketLink,
        *,
        on_ended: Callable[[str, BaseException | None], None] | None = None,
        on_note: NoteSink | None = None,
    ) -> None:
        """Take the sockets and begin.

        Args:
            envelope: of the run.
            host: this host's name in it.
            data_socks: the relay's end of each local rank's DATA socketpair; owned from here on.
            link: to the root; it stays the caller's, who ends it after `on_ended`.
            on_ended: told once, in the relay's thread, why there is nothing left to do, and the
                error if it is one.
            on_note: told what the relay did not act on.

        Raises:
            LocalProtocolError: the sockets are not those of the host's ranks.
        """
        ranks = next((one.ranks for one in envelope.hosts if one.host == host), ())
        if set(ranks) != set(data_socks) or not ranks:
            raise LocalProtocolError(
                f"the relay of host {host} was given sockets of ranks {sorted(data_socks)}, "
                f"expected {sorted(ranks)}"
            )
        self._geometry = envelope.geometry
        self._link = link
        self._on_ended = on_ended
        self._wire = WireDtype(envelope.spec.wire_dtype)
        self.staging = Staging.create(envelope.geometry, envelope.world_size, wire=self._wire)
        self._loop = PlaneLoop()
        self._group = LocalGroup(
            self._loop,
            envelope.geometry,
            self.staging,
            machine=RelayMachine(
                ranks,
                has_buffers=envelope.geometry.buffers_numel > 0,
                drain_ceiling_s=envelope.spec.stall_timeout_s,
            ),
            world_size=envelope.world_size,
            on_note=on_note,
        )
        self._fold = Fold()
        self._outgoing: dict[int, F32] = {}
        self._outgoing_narrow: dict[int, BF16] = {}
        self._base = Gather()
        self._differences: BF16 | None = None
        self._has_params = False
        self._incoming: IncomingControl | IncomingRound | None = None
        self._round_ends: deque[RoundEnd] = deque()
        self._group.open(data_socks)
        self._thread = threading.Thread(target=self._run, name="flodl-relay-plane", daemon=True)
        self._thread.start()

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        """Return the place for the values of a bucket from the root.

        Raises:
            RemoteProtocolError: the bucket is out of turn.
        """
        if self._incoming is None:
            raise unexpected_bucket(frame, "none before this host shipped its own")
        return self._incoming.begin(frame)

    def on_bucket(self, frame: BucketFrame) -> None:
        """Take note of a bucket whose values are in their place.

        Raises:
            RemoteProtocolError: the bucket is out of turn.
        """
        if self._incoming is None:
            raise unexpected_bucket(frame, "none before this host shipped its own")
        self._incoming.complete(frame)
        self._loop.wake()

    def on_message(self, message: object) -> bool:
        """Take a message of the root, if it is one for the data plane; return whether it was."""
        if isinstance(message, RoundEnd):
            end = message
            self._loop.post(lambda: self._round_ends.append(end))
        elif isinstance(message, RelayDeclareDead):
            self.declare_dead(message.rank)
        else:
            return False
        return True

    def on_link_closed(self, reason: str) -> None:
        """Learn that the root is gone; the relay ends."""
        self._loop.post(lambda: self._group.feed(UpstreamClosed(reason)))

    def declare_dead(self, rank: Rank) -> None:
        """Stop waiting for a local rank; safe from any thread, more than once."""
        self._loop.post(lambda: self._group.declare_dead(rank))

    def stop(self) -> None:
        """End the plane's thread and give its memory and sockets back."""
        self.on_link_closed("the relay was stopped")
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while self._group.end_reason is None or self._group.due:
                if self._group.due:
                    self._perform(self._group.due.popleft())
                else:
                    self._group.wait()
        except _Ended:
            pass
        except Exception as raised:  # reported by on_ended, whatever it is
            error = raised
        reason = self._group.end_reason or f"the relay's data plane failed: {error}"
        self._incoming = None
        self._group.close()
        self._loop.close()
        self.staging.close()
        if self._on_ended is not None:
            self._on_ended(reason, error)

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._group.end_reason is not None:
                raise _Ended
            self._group.wait()

    def _perform(self, effect: ShipRound | FanOut) -> None:
        if isinstance(effect, FanOut):
            self._group.fan_out(effect)
            return
        if effect.round is Round.CONTROL:
            self._ship_control(effect)
        else:
            self._ship_values(effect)
        self._until(self._round_is_over)
        end = self._round_ends.popleft()
        if isinstance(self._incoming, IncomingRound) and end.outcome is RoundOutcome.COMMITTED:
            self._incoming.commit()
            self._has_params |= end.round is Round.PARAMS
        self._group.feed(RoundEndReceived(end))

    def _current_end(self) -> RoundEnd | None:
        """The end of the round under way, if it is here.

        It may be here before the buckets of its round, and the end of a round without
        buckets even before this host has begun that round.
        """
        while self._round_ends and self._group.is_past(self._round_ends[0]):
            self._group.feed(RoundEndReceived(self._round_ends.popleft()))
        end = self._round_ends[0] if self._round_ends else None
        return end if end is not None and self._group.is_in(end) else None

    def _has_failed(self) -> bool:
        end = self._current_end()
        return end is not None and end.outcome is RoundOutcome.FAILED

    def _round_is_over(self) -> bool:
        if self._current_end() is None or self._incoming is None:
            return False
        return self._incoming.is_complete or self._has_failed()

    def _ship_control(self, effect: ShipRound) -> None:
        self._group.freeze(effect)
        self.staging.begin_cycle(effect.cycle)
        self._incoming = IncomingControl(effect.cycle, self.staging.control)
        fold = self._group.fold
        mass = fold.mass(Round.CONTROL)
        frame = control_frame(effect.cycle, fold.control, mass=mass, ranks=fold.ranks)
        self._send_bucket(frame, fold.control.data)

    def _plan(self, effect: ShipRound) -> RoundPlan:
        if effect.round is Round.BUFFERS:
            return plan_buffers(self._geometry, effect.cycle)
        wire = self._wire if self._has_params else WireDtype.F32
        return plan_params(self._geometry, effect.cycle, self.staging.control, wire)

    def _landing(self, plan: RoundPlan) -> Landing:
        if not plan.is_narrow:
            is_buffers = plan.round is Round.BUFFERS
            return DirectLanding(plan, self.staging.buffers if is_buffers else self.staging.params)
        if self._differences is None:
            self._differences = np.empty(self._geometry.params_numel, np.uint16)
        return DifferenceLanding(plan, self.staging.params, self._differences, Narrow())

    def _ship_values(self, effect: ShipRound) -> None:
        plan = self._plan(effect)
        incoming = self._incoming = IncomingRound(plan, self._landing(plan))
        fold = self._group.fold
        mass, ranks = fold.mass(plan.round), fold.movers(plan.round)
        for index in range(plan.count):
            if not self._await_consensus(incoming, index - MAX_AHEAD + 1):
                return
            values = self._subtotal(plan, index) if mass > 0 else memoryview(b"")
            self._send_bucket(plan.frame(index, mass=mass, ranks=ranks), values)

    def _await_consensus(self, incoming: IncomingRound, count: int) -> bool:
        """Wait for `count` buckets of the consensus; return False if the round failed."""
        self._until(lambda: incoming.received >= count or self._has_failed())
        return not self._has_failed()

    def _subtotal(self, plan: RoundPlan, index: int) -> memoryview:
        """Fold one bucket; kept buffers are free again once their consensus came back."""
        if plan.is_narrow:
            return self._difference(plan, index)
        bucket = plan.buckets[index]
        terms = self._group.fold.terms(plan.round, bucket)
        if len(terms) == 1 and terms[0].mass == 1.0 and is_contiguous(bucket):
            return terms[0].values.data
        size = bucket_values(bucket)
        kept = self._outgoing.get(index % MAX_AHEAD)
        if kept is None or kept.size < size:
            kept = self._outgoing[index % MAX_AHEAD] = np.empty(size, np.float32)
        self._fold.combine(kept[:size], terms)
        return kept[:size].data

    def _difference(self, plan: RoundPlan, index: int) -> memoryview:
        """Fold one bucket as differences from the last commit, rounded once."""
        bucket = plan.buckets[index]
        base = self._base.values(self.staging.params, bucket)
        terms = self._group.fold.terms(plan.round, bucket, base)
        size = bucket_values(bucket)
        kept = self._outgoing_narrow.get(index % MAX_AHEAD)
        if kept is None or kept.size < size:
            kept = self._outgoing_narrow[index % MAX_AHEAD] = np.empty(size, np.uint16)
        self._fold.combine_narrow(kept[:size], terms)
        return kept[:size].data

    def _send_bucket(self, frame: BucketFrame, values: memoryview) -> None:
        try:
            self._link.send_bucket(frame, values)
        except LinkClosedError:
            return  # its end comes behind all that came through it
        except (FlodlError, OSError) as error:
            self._group.feed(UpstreamClosed(f"the link to the root ended: {error}"))
            raise _Ended from error
