"""The product's data plane as a backend of the averaging bench.

    cd …/bench
    PYTHONPATH=/path/to/repo/tests/bench python averaging_bench.py --world 4 \
        --layouts resnet18,flat:100 gloo gloo:weight=1 averaging_adapter/Plane

Everything that a cycle costs a rank is in: the snapshot with its verdict and norm, the
control round, sealed buckets between hosts, the divergence, adoption at RoundEnd.
Options: hosts=2, local=1 (the first host is the launcher's own; 0 puts a relay before
every host), wire=f32|bf16.

The parameters live in the slot, as a CPU rank's do, so the bench's tensors are moved
there before each timed round; other backends of the run then average the same memory.
"""

from plane_services import connect, end_services, geometry_of, make_layout, start_services
from torch import nn

from flodl_core.ids import Cycle, Rank
from flodl_core.planes.star_client import StarClient
from flodl_core.training.flat import FlatLayout
from flodl_core.training.rounds import RankRounds
from flodl_core.training.snapshot import Claim


class Plane:
    """One rank of a world behind real relays and a real root."""

    weighted = True

    @classmethod
    def start_services(cls, world, opts):
        hosts = int(opts.get("hosts", 2))
        assert world % hosts == 0
        local = opts.get("local", "1") == "1"
        layout = make_layout([world // hosts] * hosts, wire=opts.get("wire", "f32"), local=local)
        return start_services(layout), layout

    def __init__(self, rank, world, opts, shared):
        self.rank, self.world, self.layout = rank, world, shared
        self.generation = 0
        self.star = None

    def prepare(self, tensors):
        self.generation += 1
        shapes = [list(tensor.shape) for tensor in tensors]
        geometry = geometry_of(shapes)
        sock = connect(self.layout, self.rank, shapes, self.generation)
        self.star = StarClient(sock, geometry, Rank(self.rank), self.world)
        model = nn.ParameterList(nn.Parameter(tensor) for tensor in tensors)
        flat = FlatLayout(model, geometry, params_memory=self.star.slot.params)
        self.homes = [parameter.detach() for parameter in model]
        self.rounds = RankRounds(flat, self.star)
        self.cycle = -1

    def before(self, tensors, mass):
        """Untimed: the first cycle is the initial broadcast of rank 0; then take the values in."""
        if self.cycle < 0:
            self._run_cycle(int(self.rank == 0))
        for tensor, home in zip(tensors, self.homes, strict=True):
            home.copy_(tensor)
            tensor.set_(home)

    def average_(self, tensors, mass):
        self._run_cycle(int(mass))

    def _run_cycle(self, n):
        self.cycle += 1
        self.rounds.offer(
            Claim(cycle=Cycle(self.cycle), n=n, samples=n, gamma=1.0, world_size=self.world)
        )
        while (result := self.rounds.wait(60.0)) is None:
            pass
        assert result.outcome == "committed", result

    def release(self):
        self.rounds = self.homes = None
        self.star.close()
        self.star = None

    def close(self):
        if self.rank == 0:
            end_services(self.layout, {})
