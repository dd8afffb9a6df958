"""Which tensors are one, what is refused by name, and where everything lies on the wire."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from training_models import Odd, geometry_of

from flodl_core.errors import LayoutError, SchemaDriftError
from flodl_core.training.geometry import require_same
from flodl_core.training.strides import (
    c_strides,
    covers,
    elements,
    express,
    is_dense,
    overlap,
    overlaps_itself,
)
from flodl_core.training.survey import survey_model


def holding(**tensors):
    module = nn.Module()
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter):
            module.register_parameter(name, tensor)
        else:
            module.register_buffer(name, tensor)
    return module


def refusal(module):
    with pytest.raises(LayoutError) as caught:
        survey_model(module)
    assert caught.value.fix
    return caught.value.happened


def segments(module):
    return {segment.name: segment for segment in geometry_of(module).params}


def test_tied_names_are_one_segment_with_both_names():
    found = segments(Odd())
    assert [view.name for view in found["embedding.weight"].views] == [
        "embedding.weight",
        "head.weight",
    ]
    assert "head.weight" not in found


def test_a_view_and_a_transpose_are_described_inside_their_base():
    views = {view.name: view for view in segments(Odd())["base"].views}
    assert (views["rows"].shape, views["rows"].strides, views["rows"].storage_offset) == (
        (2, 4),
        (4, 1),
        4,
    )
    assert (views["flipped"].strides, views["flipped"].storage_offset) == ((1, 4), 0)


def test_the_contiguous_one_of_two_equal_views_is_the_primary_whatever_the_order():
    base = torch.randn(2, 3)
    segment = segments(holding(first=nn.Parameter(base.t()), second=nn.Parameter(base)))["second"]
    assert segment.shape == (2, 3)
    assert [(view.name, view.strides) for view in segment.views] == [
        ("first", (1, 2 + 1)),
        ("second", (3, 1)),
    ]


def test_a_transposed_parameter_is_laid_in_logical_order():
    segment = segments(Odd())["transposed"]
    assert segment.shape == (4, 3)
    assert segment.views[0].strides == (3, 1)


def test_slices_of_one_storage_that_share_no_element_are_two_segments():
    base = torch.randn(4, 2)
    found = segments(holding(left=nn.Parameter(base[:, 0]), right=nn.Parameter(base[:, 1])))
    assert set(found) == {"left", "right"}


def test_segments_begin_at_64_bytes_and_do_not_overlap():
    end = 0
    for segment in geometry_of(Odd()).params:
        assert segment.offset % 16 == 0
        assert segment.offset >= end
        end = segment.offset + segment.numel
    assert geometry_of(Odd()).params_numel >= end


def test_a_complex_element_is_two_values_and_an_empty_parameter_none():
    found = segments(Odd())
    assert found["pairs"].numel == 12
    assert (found["empty"].numel, found["scalar"].numel) == (0, 1)


def test_float_buffers_are_reduced_integers_stay_and_caches_are_left_out():
    geometry = geometry_of(Odd())
    assert [segment.name for segment in geometry.buffers] == [
        "drift",
        "spread",
        "norm.running_mean",
        "norm.running_var",
    ]
    assert [entry.name for entry in geometry.locals] == [
        "counter",
        "mask",
        "norm.num_batches_tracked",
    ]


def test_a_buffer_that_lies_in_a_parameter_is_a_name_of_the_parameter():
    weight = nn.Parameter(torch.randn(4))
    module = holding(weight=weight)
    module.register_buffer("window", weight.data[1:3])
    segment = segments(module)["weight"]
    assert [view.name for view in segment.views] == ["weight", "window"]
    assert geometry_of(module).buffers == ()


def test_a_lazy_parameter_is_refused_by_name():
    module = nn.Sequential(nn.LazyLinear(3))
    assert "'0.weight'" in refusal(module)
    assert "lazy" in refusal(module)


def test_a_dtensor_is_refused_by_name():
    class DTensor(nn.Parameter):
        pass

    module = holding()
    module.register_parameter("sharded", DTensor(torch.zeros(2)))
    assert "'sharded' is a DTensor" in refusal(module)


@pytest.mark.slow
def test_a_model_sharded_by_torch_itself_is_refused_by_name():
    from torch import distributed
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_tensor

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        shard = nn.Parameter(distribute_tensor(torch.zeros(4), mesh))
        assert "'shard' is a DTensor" in refusal(holding(shard=shard))
        assert "wrapped in FSDPModule" in refusal(fully_shard(nn.Linear(2, 2), mesh=mesh))
        assert "wrapped in DistributedDataParallel" in refusal(
            nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        )
    finally:
        distributed.destroy_process_group()


def test_a_wrapped_model_is_refused_by_the_name_of_its_wrapper():
    module = nn.Module()
    module.inner = nn.DataParallel(nn.Linear(2, 2))
    assert "'inner' is wrapped in DataParallel" in refusal(module)


def test_an_expanded_parameter_is_refused_by_name():
    module = holding(wide=nn.Parameter(torch.zeros(1, 3).expand(4, 3)))
    assert "'wide' is expanded (stride 0)" in refusal(module)


def test_a_dimension_of_one_element_with_stride_0_is_no_expansion():
    one = torch.zeros(3).as_strided((1, 3), (0, 1))
    assert segments(holding(one=nn.Parameter(one)))["one"].shape == (1, 3)


def test_a_parameter_that_overlaps_itself_is_refused_by_name():
    sliding = torch.zeros(6).as_strided((3, 3), (1, 1))
    assert "'sliding' is partly overlapping itself" in refusal(
        holding(sliding=nn.Parameter(sliding))
    )


def test_two_parameters_that_overlap_partly_are_refused_by_both_names():
    base = torch.zeros(6)
    said = refusal(holding(left=nn.Parameter(base[:4]), right=nn.Parameter(base[2:])))
    assert "'left'" in said
    assert "'right'" in said


def test_another_dtype_in_the_same_memory_is_refused():
    base = torch.zeros(4, dtype=torch.complex64)
    said = refusal(holding(whole=nn.Parameter(base), parts=nn.Parameter(torch.view_as_real(base))))
    assert "lies in the memory of 'whole'" in said


def test_meta_and_sparse_parameters_are_refused():
    assert "meta device" in refusal(holding(far=nn.Parameter(torch.empty(2, device="meta"))))
    sparse = torch.zeros(3).to_sparse()
    assert "not a dense tensor" in refusal(holding(thin=nn.Parameter(sparse)))


def test_large_integer_buffers_are_refused_with_the_largest_named():
    module = holding(small=torch.zeros(4, dtype=torch.int64), big=torch.zeros(9 << 20).bool())
    with pytest.raises(LayoutError, match="'big'"):
        geometry_of(module)


def test_a_large_integer_parameter_is_told_what_a_parameter_can_do():
    table = nn.Parameter(torch.zeros(9 << 20, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(LayoutError, match="the largest is parameter 'table'") as caught:
        geometry_of(holding(small=torch.zeros(4, dtype=torch.int64), table=table))
    assert "as a buffer with persistent=False" in caught.value.fix
    with pytest.raises(LayoutError, match="the largest is buffer 'mask'") as caught:
        geometry_of(holding(mask=torch.zeros(9 << 20).bool()))
    assert caught.value.fix == "register constant masks and tables with persistent=False"


def test_many_parameters_of_one_storage_are_told_apart_quickly():
    base = torch.zeros(4000)
    module = holding(
        **{f"p{index}": nn.Parameter(base[index * 4 : index * 4 + 4]) for index in range(1000)}
    )
    assert len(geometry_of(module).params) == 1000


def test_the_first_difference_to_the_agreed_geometry_is_named():
    with pytest.raises(SchemaDriftError, match=r"'weight' is float32 \[2, 3\]"):
        require_same(geometry_of(nn.Linear(3, 2)), geometry_of(nn.Linear(4, 2)))
    with pytest.raises(SchemaDriftError, match="1 parameters here"):
        require_same(geometry_of(nn.Linear(3, 2, bias=False)), geometry_of(nn.Linear(3, 2)))


views = st.tuples(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=3), st.integers(0, 8)
)


def view_of(storage, drawn):
    dims, offset = drawn
    return storage.as_strided([size for size, _ in dims], [step for _, step in dims], offset)


@settings(max_examples=300, deadline=None)
@given(views, views)
def test_strides_agree_with_the_list_of_elements(one_drawn, other_drawn):
    storage = torch.arange(100)
    one, other = view_of(storage, one_drawn), view_of(storage, other_drawn)
    mine, theirs = one.reshape(-1).tolist(), other.reshape(-1).tolist()
    assert elements(one).reshape(-1).tolist() == mine
    assert overlaps_itself(one) == (len(set(mine)) < len(mine))
    full = max(mine) - min(mine) + 1 == len(set(mine)) == len(mine)
    assert is_dense(one) == full
    assert overlap(one, other) == bool(set(mine) & set(theirs))
    assert covers(one, other) == (set(theirs) <= set(mine))


@settings(max_examples=300, deadline=None)
@given(st.permutations([0, 1, 2]), views)
def test_what_express_says_reads_the_same_elements(order, drawn):
    storage = torch.arange(120)
    whole = storage[:24].view(2, 3, 4).permute(order)
    part = view_of(storage, drawn)
    if not covers(whole, part):
        return
    said = express(part, whole)
    if said is None:
        assert not whole.is_contiguous()
        return
    strides, offset = said
    laid = whole.contiguous().reshape(-1)
    assert torch.equal(laid.as_strided(part.shape, strides, offset), part)


def test_c_strides_are_those_of_numpy():
    for shape in [(), (3,), (2, 3), (4, 1, 2)]:
        expected = tuple(step // 4 for step in np.zeros(shape, np.float32).strides)
        assert c_strides(shape) == expected
