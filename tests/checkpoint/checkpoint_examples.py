"""A geometry with every kind of tensor, and the values that its file must hold.

params:   w (2,3) f32, twice (tied under a second name, and its transpose as a view)
          scalar (), empty (0,), short (3,) float16, brain (4,) bfloat16,
          wide (2,) float64, phase (2,) complex64, deep (1,) complex128
buffers:  running (3,) f32
locals:   count () int64 above 2**53, mask (3,) bool
"""

import numpy as np

from flodl_core.checkpoint.bundle import write_bundle
from flodl_core.checkpoint.meta import BundleFacts, SavedCoverage, SavedEpoch
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.ids import SaveReason
from flodl_core.messages.job import Geometry, LocalBuffer, Segment, View
from flodl_core.messages.timing import TensorBlob

COUNT = 2**53 + 1


def c_strides(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def view(name, shape, *, strides=None, storage_offset=0):
    return View(
        name=name,
        shape=tuple(shape),
        strides=c_strides(shape) if strides is None else tuple(strides),
        storage_offset=storage_offset,
    )


def segment(name, dtype, shape, offset, *, views=None):
    numel = int(np.prod(shape, dtype=np.int64)) * (2 if dtype.startswith("complex") else 1)
    return Segment(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        offset=offset,
        numel=numel,
        trainable=True,
        views=(view(name, shape),) if views is None else tuple(views),
    )


def geometry(params, *, buffers=(), locals_=()):
    def numel(segments):
        return max((one.offset + one.numel for one in segments), default=0)

    return Geometry(
        params=tuple(params),
        params_numel=numel(params),
        buffers=tuple(buffers),
        buffers_numel=numel(buffers),
        locals=tuple(locals_),
    )


def full_geometry():
    return geometry(
        [
            segment(
                "w", "float32", (2, 3), 0,
                views=[
                    view("w", (2, 3)),
                    view("tied", (2, 3)),
                    view("turned", (3, 2), strides=(1, 3)),
                    view("corner", (2,), strides=(3,), storage_offset=1),
                ],
            ),
            segment("scalar", "float32", (), 16),
            segment("empty", "float32", (0,), 32),
            segment("short", "float16", (3,), 32),
            segment("brain", "bfloat16", (4,), 48),
            segment("wide", "float64", (2,), 64),
            segment("phase", "complex64", (2,), 80),
            segment("deep", "complex128", (1,), 96),
        ],
        buffers=[segment("running", "float32", (3,), 0)],
        locals_=[
            LocalBuffer(name="count", dtype="int64", shape=()),
            LocalBuffer(name="mask", dtype="bool", shape=(3,)),
        ],
    )  # fmt: skip


def full_values():
    params = np.zeros(98, np.float32)
    params[0:6] = [1, 2, 3, 4, 5, 6]
    params[16] = -7
    params[32:35] = [0.5, -0.25, 1.0009765625]
    params[48:52] = [1.0, 1.00390625, 1.01171875, -3.0e38]
    params[64:66] = [0.125, 1e-3]
    params[80:84] = [1, 2, -3, 4]
    params[96:98] = [5, -6]
    buffers = np.array([0.5, 1.5, 2.5], np.float32)
    local = {
        "count": TensorBlob(dtype="int64", shape=(), data=COUNT.to_bytes(8, "little")),
        "mask": TensorBlob(dtype="bool", shape=(3,), data=b"\x01\x00\x01"),
    }
    return params, buffers, local


def expected_values():
    """What the file holds, worked out by hand from `full_values`."""
    return {
        "w": np.array([[1, 2, 3], [4, 5, 6]], np.float32),
        "tied": np.array([[1, 2, 3], [4, 5, 6]], np.float32),
        "turned": np.array([[1, 4], [2, 5], [3, 6]], np.float32),
        "corner": np.array([2, 5], np.float32),
        "scalar": np.array(-7, np.float32),
        "empty": np.zeros((0,), np.float32),
        "short": np.array([0.5, -0.25, 1.0009765625], np.float16),
        # 1 + 2**-8 lies halfway between 1 and 1 + 2**-7: to even, that is 1.
        # 1 + 3 * 2**-8 lies halfway between 1 + 2**-7 and 1 + 2**-6: to even, that is 1 + 2**-6.
        # 3e38 / 2**120 = 225.7, and 2**120 is the spacing there.
        "brain": np.array([1.0, 1.0, 1.015625, -226 * 2.0**120], np.float32),
        "wide": np.array([0.125, np.float32(1e-3)], np.float64),
        "phase": np.array([1 + 2j, -3 + 4j], np.complex64),
        "deep": np.array([5 - 6j], np.complex128),
        "running": np.array([0.5, 1.5, 2.5], np.float32),
        "count": np.array(COUNT, np.int64),
        "mask": np.array([True, False, True]),
    }


def facts(**given):
    return BundleFacts(
        **{
            "run_id": "00112233445566aa",
            "host": "red",
            "epoch": 1,
            "epochs": 4,
            "global_step": 120,
            "sync_round": 30,
            "world_size": 4,
            "reason": SaveReason.CHECKPOINT,
            "coverage": SavedCoverage(
                seed=5,
                batch_size=16,
                n_samples=1000,
                per_epoch=(SavedEpoch(epoch=1, total_samples=992, uncovered_ranges=((64, 32),)),),
            ),
            "created_at": "2031-01-02T03:04:05Z",
            **given,
        }
    )


def small_geometry(numel=4):
    return geometry([segment("w", "float32", (numel,), 0)])


def write_small(stem, value, *, resumed=None, **given):
    values = np.full(4, value, np.float32)
    return write_bundle(
        stem,
        small_geometry(),
        SavedConsensus(
            params=values,
            buffers=np.zeros(0, np.float32),
            local_buffers={},
        ),
        facts=facts(**given),
        resumed=resumed,
    )
