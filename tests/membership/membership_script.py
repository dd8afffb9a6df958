"""A ledger on a script of its own: `world.at(3).joins("red")`; invariants after each event."""

from flodl_core.config.window import WindowConfig
from flodl_core.ids import HostName, Mode, RunId, StartMode
from flodl_core.machines import Tick
from flodl_core.membership.events import (
    AdmitMember,
    HelloReceived,
    MemberLeft,
    RefuseMember,
    StartRequested,
    WindowOpened,
)
from flodl_core.membership.ledger import MembershipLedger
from flodl_core.membership.roster import ConnectionId, Expected
from flodl_core.messages.join import JoinHello

EXPECTED = Expected(
    run_id=RunId("aaaabbbbccccdddd"),
    mode=Mode.CPU_SYNC,
    wire_dtype="f32",
    n_samples=100,
    dataset_sig="da" * 32,
    model_sig="ab" * 32,
    model_entries=("param|fc.weight|float32|(10, 5)", "param|fc.bias|float32|(10,)"),
    layout_sig="1a" * 32,
    geometry_sig="9e" * 32,
)


def window(start_mode="auto", *, quorum=2, target=None, window_s=300.0, cap_s=600.0):
    return WindowConfig(
        min_rank_start=quorum,
        target_ranks=target,
        join_timeout_s=window_s,
        max_join_timeout_s=cap_s,
        start_mode=StartMode(start_mode),
    )


def hello(host="red", devices=1, **changes):
    """A hello that a run of `EXPECTED` admits."""
    names = tuple(f"cpu:{i}" for i in range(devices)) if isinstance(devices, int) else devices
    fields = {
        "host": HostName(host),
        "local_devices": names,
        "gpus": (),
        "torch_variant": "2.6.0+cpu",
        "n_samples": 100,
        "dataset_sig": EXPECTED.dataset_sig,
        "model_sig": EXPECTED.model_sig,
        "layout_sig": EXPECTED.layout_sig,
        "model_entries": EXPECTED.model_entries,
        "run_id": EXPECTED.run_id,
        "geometry_sig": EXPECTED.geometry_sig,
        "wire_dtype": "f32",
    }
    return JoinHello(**(fields | changes))


class World:
    """One ledger, its virtual clock, and every effect so far."""

    def __init__(self, config=None, *, expected=EXPECTED, hosts=(), opened=True):
        self.ledger = MembershipLedger(
            config or window(), expected, configured_hosts=tuple(map(HostName, hosts))
        )
        self.now = 1000.0
        self.effects = []
        self.last = []
        self._next_connection = 0
        if opened:
            self.does(WindowOpened())

    @property
    def phase(self):
        return str(self.ledger.phase)

    def at(self, seconds):
        """Set the clock to that many seconds after the window opened."""
        self.now = 1000.0 + seconds
        return self

    def does(self, event):
        self.last = self.ledger.handle(event, self.now)
        self.effects += self.last
        self.ledger.check()
        due = self.ledger.deadline()
        if isinstance(event, Tick):
            assert due is None or due > self.now
        return self

    def tick(self):
        return self.does(Tick())

    def joins(self, host="red", devices=1, **changes):
        connection = ConnectionId(self._next_connection)
        self._next_connection += 1
        said = hello(host, devices, **changes)
        return self.does(HelloReceived(connection=connection, hello=said, address="10.0.0.5:9"))

    def leaves(self, connection):
        return self.does(MemberLeft(connection=ConnectionId(connection)))

    def starts(self):
        return self.does(StartRequested())

    def one(self, kind, *, of_all=False):
        """The only effect of a kind, in the last answer or in all."""
        (found,) = [e for e in (self.effects if of_all else self.last) if isinstance(e, kind)]
        return found

    def kinds(self):
        return [type(effect).__name__ for effect in self.last]

    def admitted(self):
        return [e for e in self.effects if isinstance(e, AdmitMember)]

    def refused(self):
        return [e for e in self.effects if isinstance(e, RefuseMember)]

    def snapshot(self):
        return self.ledger.snapshot(self.now)
