"""The layout keeps every tensor itself: values, objects, ties, strides; strays come home."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from training_models import MemorySlot, Odd, geometry_of, laid_out, values_by_name

from flodl_core.errors import SchemaDriftError
from flodl_core.ids import Cycle
from flodl_core.reduce.buckets import active_spans
from flodl_core.training.adopt import adopt_buffers, adopt_params
from flodl_core.training.local_buffers import pack_local_buffers
from flodl_core.training.snapshot import Claim, take_snapshot

CLAIM = Claim(cycle=Cycle(1), n=1, samples=4, gamma=1.0, world_size=2)


def snap(model, geometry=None, claim=CLAIM):
    layout, memory = laid_out(model, geometry)
    slot = MemorySlot(layout.geometry, memory)
    verdict = take_snapshot(layout, slot, claim)
    return layout, slot, verdict


def plain(tensor):
    found = tensor.detach().to(torch.float32 if not tensor.is_complex() else tensor.dtype)
    return found.numpy()


def test_layout_keeps_values_objects_and_names():
    model = Odd()
    before = copy.deepcopy(model.state_dict())
    objects = dict(model.named_parameters(remove_duplicate=False))
    laid_out(model)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert parameter is objects[name]


def test_ties_and_views_survive_the_layout():
    model = Odd()
    laid_out(model)
    assert model.head.weight is model.embedding.weight
    with torch.no_grad():
        model.base.zero_()
    assert not model.rows.any()
    assert not model.flipped.any()


def test_float32_cpu_parameters_live_in_the_slots_memory():
    model = Odd()
    layout, memory = laid_out(model)
    memory[:] = 7
    assert bool((model.base == 7).all())
    assert bool((model.frozen == 7).all())
    assert {placed.segment.name for placed in layout.params if not placed.in_region} == {
        "transposed",
        "wide",
        "narrow",
        "pairs",
    }


def test_other_dense_strides_are_kept_and_each_storage_is_aligned():
    model = Odd().to(memory_format=torch.channels_last)
    layout, _ = laid_out(model)
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.transposed.stride() == (1, 4)
    for placed in layout.params:
        if not placed.in_region:
            assert placed.home.data_ptr() % 64 == 0


def test_a_parameter_with_gaps_is_laid_in_order():
    model = nn.Module()
    model.gaps = nn.Parameter(torch.arange(6.0).view(3, 2)[:, 0])
    laid_out(model)
    assert model.gaps.tolist() == [0.0, 2.0, 4.0]
    assert model.gaps.is_contiguous()


def test_a_snapshot_holds_every_name_in_logical_order():
    model = Odd()
    layout, slot, _ = snap(model)
    state = model.state_dict()
    params = values_by_name(layout.geometry, slot.params)
    buffers = values_by_name(layout.geometry, slot.buffers, buffers=True)
    for name, value in {**params, **buffers}.items():
        np.testing.assert_array_equal(value, plain(state[name]), err_msg=name)
    covered = set(params) | set(buffers) | {entry.name for entry in layout.geometry.locals}
    assert covered == set(state)


def test_channels_last_on_one_rank_only_gives_the_same_snapshot():
    one, other = Odd(), Odd().to(memory_format=torch.channels_last)
    geometry = geometry_of(one)
    assert geometry_of(other) == geometry
    np.testing.assert_array_equal(snap(one, geometry)[1].params, snap(other, geometry)[1].params)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_adoption_overwrites_every_active_name_and_no_other(memory_format):
    source, target = Odd(seed=1), Odd(seed=2).to(memory_format=memory_format)
    _, given, _ = snap(source)
    layout, _, _ = snap(target)
    untouched = {name: target.state_dict()[name].clone() for name in ("frozen", "counter", "mask")}
    objects = dict(target.named_parameters())
    active = [segment.trainable for segment in layout.geometry.params]
    spans = active_spans(layout.geometry, active)
    given.params.flags.writeable = given.buffers.flags.writeable = False
    adopt_params(layout, given.params, spans=spans)
    adopt_buffers(layout, given.buffers)
    expected, found = source.state_dict(), target.state_dict()
    for name, value in found.items():
        if name in untouched:
            assert torch.equal(value, untouched[name])
        elif value.is_floating_point() or value.is_complex():
            single = expected[name].to(torch.complex64 if value.is_complex() else torch.float32)
            assert torch.equal(value, single.to(value.dtype)), name
    assert dict(target.named_parameters()) == objects
    assert target.conv.weight.is_contiguous(memory_format=memory_format)


def test_cycle_0_adopts_frozen_parameters_too():
    source, target = Odd(seed=1), Odd(seed=2)
    _, given, _ = snap(source)
    layout, _, _ = snap(target)
    spans = active_spans(layout.geometry, [True] * len(layout.geometry.params))
    adopt_params(layout, given.params, spans=spans)
    assert torch.equal(target.frozen, source.frozen)


def test_integers_above_2_to_the_53_and_masks_are_packed_bit_by_bit():
    model = Odd()
    layout, _ = laid_out(model)
    packed = pack_local_buffers(layout)
    assert set(packed) == {"counter", "mask", "norm.num_batches_tracked"}
    assert int.from_bytes(packed["counter"].data, "little") == 2**53 + 1
    assert (packed["mask"].dtype, packed["mask"].data) == ("bool", b"\x01\x00\x01")


class Flagged:
    """A model whose one frozen parameter may be flagged at a snapshot."""

    def __init__(self):
        self.model = Odd()
        self.layout, self.slot, _ = snap(self.model)
        self.parameter = self.model.frozen

    def is_flagged(self):
        names = [segment.name for segment in self.layout.geometry.params]
        return bool(self.slot.flags[names.index("frozen")])

    def is_flagged_now(self):
        take_snapshot(self.layout, self.slot, CLAIM)
        return self.is_flagged()


def test_unfrozen_parameters_are_flagged_from_the_next_snapshot_on():
    one = Flagged()
    assert not one.is_flagged()
    one.parameter.requires_grad_(True)
    assert one.is_flagged_now()


def test_what_was_unfrozen_once_is_flagged_for_good():
    # it may be trained and frozen again before the next snapshot, on each rank's own data
    one = Flagged()
    one.parameter.requires_grad_(True)
    one.is_flagged_now()
    one.parameter.requires_grad_(False)
    assert one.is_flagged_now()


def test_what_was_trained_and_frozen_again_between_two_snapshots_is_flagged():
    one = Flagged()
    one.parameter.requires_grad_(True)
    (one.parameter.abs() ** 2).sum().backward()
    one.parameter.requires_grad_(False)
    assert one.is_flagged_now()


def trained(model, optimizer):
    optimizer.zero_grad()
    sum((p.abs() ** 2).sum() for p in model.parameters() if p.requires_grad).backward()
    optimizer.step()


@pytest.mark.slow
def test_after_assigning_a_state_dict_the_next_step_changes_what_the_module_holds():
    model = Odd()
    layout, slot, _ = snap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    original = model.base
    loaded = {
        name: value + 1 for name, value in Odd(seed=3).state_dict().items() if "mask" not in name
    }
    model.load_state_dict(loaded, assign=True, strict=False)
    assert model.base is not original
    verdict = take_snapshot(layout, slot, CLAIM)
    assert set(verdict.strays) >= {"base", "embedding.weight", "head.weight", "transposed"}
    assert model.base is original
    assert model.head.weight is model.embedding.weight
    assert torch.equal(model.base, loaded["base"])
    assert torch.equal(model.transposed, loaded["transposed"])
    before = model.base.detach().clone()
    trained(model, optimizer)
    assert not torch.equal(model.base, before)
    take_snapshot(layout, slot, CLAIM)
    found = values_by_name(layout.geometry, slot.params)
    np.testing.assert_array_equal(found["base"], plain(model.base))


def test_a_stray_is_named_once():
    model = Odd()
    layout, slot, _ = snap(model)
    for expected in (("scalar",), ()):
        model.scalar.data = torch.tensor(3.0)
        assert take_snapshot(layout, slot, CLAIM).strays == expected
        assert values_by_name(layout.geometry, slot.params)["scalar"] == 3.0


def test_one_name_of_a_tie_that_strayed_brings_its_values_to_both():
    model = Odd()
    layout, _ = laid_out(model)
    model.head.weight = nn.Parameter(torch.ones(5, 4))
    assert layout.gather_strays() == ("head.weight",)
    assert model.head.weight is model.embedding.weight
    assert bool((model.embedding.weight == 1).all())


def test_buffers_may_be_rebound_in_forward():
    model = Odd()
    layout, slot, _ = snap(model)
    model.drift = model.drift * 2
    take_snapshot(layout, slot, CLAIM)
    found = values_by_name(layout.geometry, slot.buffers, buffers=True)["drift"]
    np.testing.assert_array_equal(found, plain(model.drift))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: setattr(m, "scalar", nn.Parameter(torch.zeros(2))), r"'scalar' became .*\[2\]"),
        (lambda m: m.float(), "'wide' became float32"),
        (lambda m: setattr(m, "extra", nn.Parameter(torch.zeros(2))), "'extra' appeared"),
        (lambda m: delattr(m, "frozen"), "'frozen' is gone"),
        (lambda m: setattr(m, "drift", torch.zeros(5)), "'drift' became"),
        (lambda m: setattr(m, "head", nn.Linear(4, 5, bias=False)), "module of 'head.weight' was"),
        (lambda m: setattr(m, "spare", nn.Parameter(torch.zeros(2))), "'spare' appeared"),
        (lambda m: setattr(m, "frozen", None), "'frozen' is gone"),
    ],
)
def test_schema_drift_names_the_tensor(change, said):
    model = Odd()
    model.register_parameter("spare", None)
    layout, slot, _ = snap(model)
    change(model)
    with pytest.raises(SchemaDriftError, match=said):
        take_snapshot(layout, slot, CLAIM)


def test_a_module_without_tensors_may_be_replaced():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))
    layout, slot, _ = snap(model)
    model[1] = nn.Dropout(0.5)
    take_snapshot(layout, slot, CLAIM)
    model[1] = nn.Linear(2, 2)
    with pytest.raises(SchemaDriftError, match=r"'1.bias' appeared"):
        take_snapshot(layout, slot, CLAIM)


def test_a_growing_cache_is_no_drift():
    model = Odd()
    layout, slot, _ = snap(model)
    model.cache = torch.zeros(9)
    model.register_buffer("another_cache", torch.zeros(3), persistent=False)
    take_snapshot(layout, slot, CLAIM)


def test_a_good_snapshot_says_its_masses_and_norm():
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 4.0]]))
    claim = Claim(cycle=Cycle(2), n=4, samples=9, gamma=0.5, world_size=2)
    _, slot, verdict = snap(model, claim=claim)
    assert verdict.pre_norm == 5.0
    assert not verdict.declared
    assert (slot.written.n, slot.written.samples) == (4, 9)
    assert (slot.written.mass_params, slot.written.mass_buffers) == (2.0, 1.0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["base", "wide", "narrow", "pairs", "drift", "frozen"])
def test_a_value_that_is_not_finite_is_declared_and_named(name, bad):
    model = Odd()
    with torch.no_grad():
        dict(model.state_dict())[name].view(-1)[0] = bad
    _, slot, verdict = snap(model)
    assert verdict.declared
    assert verdict.fault == f"{name} holds a value that is not finite"
    assert (verdict.n, slot.written.n, slot.written.declared) == (0, 0, True)
    assert (slot.written.mass_params, slot.written.mass_buffers) == (0.0, 0.0)
    assert slot.written.samples == 4


def test_a_wide_value_outside_f32_is_declared():
    model = Odd()
    with torch.no_grad():
        model.wide[1] = 1e300
    assert snap(model)[2].fault == "wide holds a value that is not finite"


@pytest.mark.parametrize(("n", "declared"), [(1, False), (4, True)])
def test_mass_times_the_largest_value_must_fit_the_wire_of_the_world(n, declared):
    """1e38 × 1 × 2 ranks is below 3.4e38; 1e38 × 4 alone is above it."""
    model = nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(1e38)
    claim = Claim(cycle=Cycle(1), n=n, samples=1, gamma=1.0, world_size=2)
    verdict = snap(model, claim=claim)[2]
    assert verdict.declared is declared
    if declared:
        assert verdict.fault == "weight times the mass 4 leaves the range of f32"


def test_the_norm_may_exceed_the_limit_while_every_value_fits():
    model = nn.Linear(100, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1e38)
    verdict = snap(model)[2]
    assert not verdict.declared
    assert verdict.pre_norm == pytest.approx(1e39, rel=1e-6)
