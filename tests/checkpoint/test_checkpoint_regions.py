"""What was saved comes back into the regions of the run, value by value."""

import numpy as np
import pytest
from checkpoint_examples import COUNT, facts, full_geometry, full_values, segment
from checkpoint_examples import geometry as make_geometry

from flodl_core.checkpoint.bundle import write_bundle
from flodl_core.checkpoint.regions import read_consensus
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.errors import CheckpointError
from flodl_core.messages.job import LocalBuffer


def written(tmp_path):
    params, buffers, local = full_values()
    bundle = write_bundle(
        tmp_path / "ck",
        full_geometry(),
        SavedConsensus(
            params=params,
            buffers=buffers,
            local_buffers=local,
        ),
        facts=facts(),
    )
    return bundle, params, buffers, local


def test_every_kind_of_tensor_comes_back_as_it_was(tmp_path):
    bundle, params, buffers, local = written(tmp_path)
    found = read_consensus(bundle.weights, full_geometry())
    for part in full_geometry().params:
        place = slice(part.offset, part.offset + part.numel)
        if part.dtype in ("float16", "bfloat16"):
            assert np.allclose(found.params[place], params[place], rtol=2**-7)
        else:
            assert found.params[place].tobytes() == params[place].tobytes(), part.name
    assert found.buffers.tobytes() == buffers.tobytes()
    assert found.local_buffers == local
    assert int.from_bytes(found.local_buffers["count"].data, "little") == COUNT


def test_what_was_read_and_written_again_is_the_same_file(tmp_path):
    bundle, _, _, _ = written(tmp_path)
    found = read_consensus(bundle.weights, full_geometry())
    again = write_bundle(
        tmp_path / "again",
        full_geometry(),
        SavedConsensus(
            params=found.params,
            buffers=found.buffers,
            local_buffers=found.local_buffers,
        ),
        facts=facts(),
    )
    values = [path.read_bytes().rpartition(b"}")[2] for path in (bundle.weights, again.weights)]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (segment("absent", "float32", (2,), 0), "holds no absent"),
        (segment("w", "float32", (3, 2), 0), r"w has shape \(2, 3\), the model \(3, 2\)"),
        (segment("phase", "float32", (2,), 0), "phase has 4 values, the model 2"),
    ],
)
def test_another_model_is_named_by_its_first_difference(tmp_path, part, words):
    bundle, _, _, _ = written(tmp_path)
    with pytest.raises(CheckpointError, match=words):
        read_consensus(bundle.weights, make_geometry([part]))


def test_a_local_buffer_of_another_dtype_is_named(tmp_path):
    bundle, _, _, _ = written(tmp_path)
    other = make_geometry([], locals_=[LocalBuffer(name="count", dtype="int32", shape=())])
    with pytest.raises(CheckpointError, match="count is int64, the model has int32"):
        read_consensus(bundle.weights, other)
