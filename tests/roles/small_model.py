"""The geometry of a model of two values."""

from flodl_core.messages.job import Geometry, Segment, View


def geometry_of(name):
    """Return that of a model whose one parameter has this name."""
    return Geometry(
        params=(
            Segment(
                name=name,
                dtype="float32",
                shape=(2,),
                offset=0,
                numel=2,
                trainable=True,
                views=(View(name=name, shape=(2,), strides=(1,), storage_offset=0),),
            ),
        ),
        params_numel=16,
        buffers=(),
        buffers_numel=0,
        locals=(),
    )


GEOMETRY = geometry_of("w")
