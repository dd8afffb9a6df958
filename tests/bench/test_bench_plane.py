"""The measuring scripts measure what they say, on a model of a few megabytes."""

import threading

import pytest
import torch
from averaging_adapter import Plane
from memory import measure
from plane_services import end_services

pytestmark = [pytest.mark.slow, pytest.mark.processes]

MODEL_VALUES = 2_000_000


@pytest.mark.parametrize("options", [{}, {"local": "0"}, {"wire": "bf16"}])
def test_the_adapter_averages_by_mass(options: dict[str, str]) -> None:
    """Ranks of masses 1 and 2 with values 1 and 2 meet at 5/3; of two models, one by one."""
    services, layout = Plane.start_services(2, options)
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            plane = Plane(rank, 2, options, layout)
            for shapes in ([(1000,)], [(30, 7), (5,)]):
                tensors = [torch.full(shape, rank + 1.0) for shape in shapes]
                plane.prepare(tensors)
                plane.before(tensors, rank + 1.0)
                plane.average_(tensors, rank + 1.0)
                for tensor in tensors:
                    torch.testing.assert_close(
                        tensor, torch.full(tensor.shape, 5 / 3), rtol=1e-2, atol=0.0
                    )
                plane.release()
        except BaseException as error:
            failures.append(error)

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join(50)
    end_services(layout, services)
    assert not failures


@pytest.mark.long
@pytest.mark.parametrize(("wire", "host_bytes"), [("f32", 4), ("bf16", 6)])
def test_launcher_and_host_hold_the_same_whatever_the_number_of_ranks(
    wire: str, host_bytes: int
) -> None:
    """Twice the model and once the model, with bf16 the differences too; the rest is constant."""
    small, large = (measure(world, MODEL_VALUES, wire=wire, cycles=3) for world in (2, 8))
    constant = 24e6
    for found in (small, large):
        launcher, relay = found["launcher"], found["h1"]
        assert launcher["own"] - launcher["idle"] < 2 * 4 * MODEL_VALUES + constant
        assert relay["own"] - relay["idle"] < host_bytes * MODEL_VALUES + constant
    for name in ("launcher", "h1", "rank"):
        assert abs(large[name]["own"] - small[name]["own"]) < 3e6
