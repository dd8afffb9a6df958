"""Where every reduced value lies on the wire, made from a survey.

Segments follow each other in registration order, each at a multiple of 64 bytes
of f32 values and each in logical C order, so that hosts whose tensors have other
strides still agree. The geometry holds no tensor; a layout binds a model to it.
"""

from collections.abc import Sequence
from typing import TypeAlias

from flodl_core.errors import LayoutError, SchemaDriftError
from flodl_core.messages.job import Geometry, LocalBuffer, Segment, View
from flodl_core.training.strides import express
from flodl_core.training.survey import Cluster, Survey
from flodl_core.units import MIB, STORAGE_ALIGN_BYTES

_Tensor: TypeAlias = Segment | LocalBuffer

ALIGN_VALUES = STORAGE_ALIGN_BYTES // 4

MAX_LOCAL_BYTES = 8 * MIB
"""Integer and bool tensors travel in one message at a save."""


def build_geometry(survey: Survey) -> Geometry:
    """Return the geometry of a surveyed model.

    Raises:
        LayoutError: a view of a strided tensor cannot be described, or the integer and
            bool buffers are too large.
    """
    params, params_numel = _lay_out(survey.params)
    buffers, buffers_numel = _lay_out(survey.buffers)
    _refuse_large_locals(survey)
    return Geometry(
        params=params,
        params_numel=params_numel,
        buffers=buffers,
        buffers_numel=buffers_numel,
        locals=tuple(
            LocalBuffer(
                name=entry.name,
                dtype=dtype_name(entry.tensor.dtype),
                shape=tuple(entry.tensor.shape),
            )
            for entry in survey.locals
        ),
    )


def require_same(own: Geometry, agreed: Geometry) -> None:
    """Check that the model built here has the geometry that the run agreed on.

    Raises:
        SchemaDriftError: it has not; the first difference is named.
    """
    if own == agreed:
        return
    _compare("parameter", own.params, agreed.params)
    _compare("buffer", own.buffers, agreed.buffers)
    _compare("local buffer", own.locals, agreed.locals)
    raise SchemaDriftError(
        "the model's tensors lie elsewhere than the run agreed on",
        fix="run the same version of flodl on every host",
    )


def _compare(kind: str, ours: Sequence[_Tensor], theirs: Sequence[_Tensor]) -> None:
    for mine, expected in zip(ours, theirs, strict=False):
        if mine != expected:
            raise SchemaDriftError(
                f"{kind} {mine.name!r} is {_words(mine)} here, and the run agreed on "
                f"{expected.name!r}, {_words(expected)}",
                fix="build the same model on every host",
            )
    if len(ours) != len(theirs):
        raise SchemaDriftError(
            f"the model has {len(ours)} {kind}s here, and the run agreed on {len(theirs)}",
            fix="build the same model on every host",
        )


def dtype_name(dtype: object) -> str:
    """Return a dtype as torch prints it, without `torch.`."""
    return str(dtype).removeprefix("torch.")


def _words(what: _Tensor) -> str:
    words = f"{what.dtype} {list(what.shape)}"
    if isinstance(what, Segment):
        names = ", ".join(view.name for view in what.views)
        words += f" {'trainable' if what.trainable else 'frozen'} (names {names})"
    return words


def _lay_out(clusters: tuple[Cluster, ...]) -> tuple[tuple[Segment, ...], int]:
    segments: list[Segment] = []
    cursor = 0
    for cluster in clusters:
        tensor = cluster.primary.tensor
        numel = tensor.numel() * (2 if tensor.is_complex() else 1)
        segments.append(
            Segment(
                name=cluster.primary.name,
                dtype=dtype_name(tensor.dtype),
                shape=tuple(tensor.shape),
                offset=cursor,
                numel=numel,
                trainable=cluster.trainable,
                views=_views(cluster),
            )
        )
        cursor += -(-numel // ALIGN_VALUES) * ALIGN_VALUES
    return tuple(segments), cursor


def _views(cluster: Cluster) -> tuple[View, ...]:
    views: list[View] = []
    for member in cluster.members:
        place = express(member.tensor, cluster.primary.tensor)
        if place is None:
            raise LayoutError(
                f"{member.name!r} is a view of {cluster.primary.name!r} that no strides describe "
                "once that one lies in C order",
                fix=f"make {cluster.primary.name!r} contiguous",
            )
        strides, offset = place
        views.append(
            View(
                name=member.name,
                shape=tuple(member.tensor.shape),
                strides=strides,
                storage_offset=offset,
            )
        )
    return tuple(views)


def _refuse_large_locals(survey: Survey) -> None:
    sizes = {
        entry.name: entry.tensor.numel() * entry.tensor.element_size() for entry in survey.locals
    }
    if sum(sizes.values()) > MAX_LOCAL_BYTES:
        largest = max(survey.locals, key=lambda entry: sizes[entry.name])
        kind = "parameter" if largest.is_param else "buffer"
        raise LayoutError(
            f"integer and bool tensors take {sum(sizes.values())} bytes, expected at most "
            f"{MAX_LOCAL_BYTES}; the largest is {kind} {largest.name!r} "
            f"({sizes[largest.name]} bytes)",
            fix=(
                "no optimizer trains it: let model() make it anew, as a buffer with "
                "persistent=False"
                if largest.is_param
                else "register constant masks and tables with persistent=False"
            ),
        )
