"""A batch as bytes, so that one process can read it for another: a short head and its buffers.

Not a general serialiser: it takes what a batch is made of (tensors and numpy arrays
in tuples, named tuples, lists and dicts, beside plain numbers and texts) and refuses
everything else by name. What comes out equals what went in to the last bit, strides
included, so that training does not depend on who read a batch. The two ends are
processes of one rank that imported the same job.
"""

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np
import torch

from flodl_core.errors import JobError
from flodl_core.training.batches import Batch, named_of
from flodl_core.training.geometry import dtype_name

MAX_HEAD_BYTES: Final = 1 << 26
MAX_BUFFERS: Final = 1 << 20
"""What a rank takes of one batch."""

_MAX_DEPTH = 32
_NEEDS_GRAD = 1
_IS_TURNED = 2
"""Flags: the tensor is a leaf that wants a gradient; the array came in Fortran's order."""

_PLAIN = (bool, int, float, str, bytes)
_INT64 = range(-(1 << 63), 1 << 63)
_FIX = (
    "let collate return tensors, numpy arrays, numbers and texts in tuples, lists and dicts, "
    "or run with --loader-workers 0"
)

Node: TypeAlias = list[Any]
"""A tag, then what it needs; `_DECODE` lists the tags."""


class EncodedBatch:
    """A batch that is ready to be written.

    Attributes:
        head: how to put the batch together again.
        buffers: the bytes of its tensors and arrays, in the order of the head.
    """

    def __init__(self, batch: Batch) -> None:
        """Encode a batch; its buffers share the batch's memory where they can.

        Raises:
            JobError: it holds something else than the types named above; the type is named.
        """
        self.buffers: list[memoryview] = []
        self._seen: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []
        self.head: bytes = msgpack.packb(self._encode(batch, 0), unicode_errors="surrogatepass")
        if len(self.head) > MAX_HEAD_BYTES or len(self.buffers) > MAX_BUFFERS:
            raise JobError(
                f"a batch holds {len(self.head)} bytes of texts, bytes and numbers and "
                f"{len(self.buffers)} tensors and arrays; a loader worker hands "
                f"{MAX_HEAD_BYTES} bytes and {MAX_BUFFERS} to its rank",
                fix="let collate return them as uint8 tensors or numpy arrays, of which fewer "
                "and larger ones may be as large as they like, or run with --loader-workers 0",
            )

    def _encode(self, value: Batch, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise _unfit(f"nests deeper than {_MAX_DEPTH} levels")
        if isinstance(value, torch.Tensor):
            return self._encode_tensor(value)
        if isinstance(value, np.ndarray):
            return self._encode_array(value)
        if isinstance(value, dict | tuple | list):
            return self._encode_container(value, depth + 1)
        return _encode_plain(value)

    def _encode_container(self, value: Batch, depth: int) -> Node:
        if isinstance(value, dict):
            pairs = [
                [self._encode(key, depth), self._encode(item, depth)] for key, item in value.items()
            ]
            if type(value) is defaultdict:
                return ["default", _maker_path(value.default_factory), pairs]
            return ["dict", _class_path(value, dict), pairs]
        items = [self._encode(item, depth) for item in value]
        if hasattr(value, "_fields"):
            return ["named", _class_path(value, None), items]
        kind = tuple if isinstance(value, tuple) else list
        return [kind.__name__, _class_path(value, kind), items]

    def _encode_tensor(self, tensor: torch.Tensor) -> Node:
        if id(tensor) in self._seen:
            return ["again", self._seen[id(tensor)]]
        if type(tensor) is not torch.Tensor:
            raise _unfit(f"holds a {type(tensor).__qualname__}, which is more than its values")
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            raise _unfit(f"holds a tensor of {tensor.layout} on {tensor.device}")
        if tensor.grad_fn is not None:
            raise _unfit("holds a tensor with a gradient's history")
        self._seen[id(tensor)] = len(self._seen)
        self._kept.append(tensor)
        plain = tensor.detach().resolve_conj().resolve_neg()
        span = 1 + sum(
            (size - 1) * stride for size, stride in zip(plain.shape, plain.stride(), strict=True)
        )
        flat = plain.as_strided((span if plain.numel() else 0,), (1,))
        self.buffers.append(flat.view(torch.uint8).numpy().data)
        return [
            "tensor",
            dtype_name(plain.dtype),
            list(plain.shape),
            list(plain.stride()),
            _NEEDS_GRAD if tensor.requires_grad else 0,
        ]

    def _encode_array(self, array: np.ndarray[Any, Any]) -> Node:
        dtype = _array_dtype(array.dtype)
        if type(array) is not np.ndarray:
            raise _unfit(f"holds a {type(array).__qualname__}, which is more than its values")
        is_turned = array.flags.f_contiguous and not array.flags.c_contiguous
        plain = np.ascontiguousarray(array.T if is_turned else array)
        self.buffers.append(plain.reshape(-1).view(np.uint8).data)
        shape = list(array.T.shape if is_turned else array.shape)
        return ["array", dtype, shape, _IS_TURNED if is_turned else 0]


def decode_batch(head: bytes, buffers: Iterable[torch.Tensor]) -> Batch:
    """Put a batch together again.

    Args:
        head: of an EncodedBatch.
        buffers: its buffers as flat tensors of bytes; the batch goes on using their memory.
    """
    nodes = msgpack.unpackb(head, strict_map_key=False, unicode_errors="surrogatepass")
    return _Decoder(buffers).decode(nodes)


class _Decoder:
    def __init__(self, buffers: Iterable[torch.Tensor]) -> None:
        self._buffers = iter(buffers)
        self._tensors: list[torch.Tensor] = []

    def decode(self, node: Node) -> Batch:
        return _DECODE[node[0]](self, *node[1:])

    def tensor(
        self, dtype: str, shape: Sequence[int], stride: Sequence[int], flags: int, /
    ) -> torch.Tensor:
        flat = next(self._buffers).view(getattr(torch, dtype))
        made = flat.as_strided(shape, stride)
        if flags & _NEEDS_GRAD:
            made.requires_grad_()
        self._tensors.append(made)
        return made

    def array(self, dtype: str, shape: Sequence[int], flags: int, /) -> Any:  # noqa: ANN401
        made = next(self._buffers).numpy().view(np.dtype(dtype)).reshape(shape)
        return made.T if flags & _IS_TURNED else made

    def again(self, index: int) -> torch.Tensor:
        return self._tensors[index]

    def mapping(self, path: str | None, pairs: Iterable[tuple[Node, Node]]) -> Batch:
        made = {self.decode(key): self.decode(item) for key, item in pairs}
        return _find_class(path)(made) if path else made

    def default(self, path: str | None, pairs: Iterable[tuple[Node, Node]]) -> Batch:
        maker = _find_class(path) if path else None
        return defaultdict(maker, self.mapping(None, pairs))

    def items(self, nodes: Iterable[Node]) -> list[Batch]:
        return [self.decode(node) for node in nodes]


_DECODE: dict[str, Callable[..., Batch]] = {
    "plain": lambda _, value: value,
    "int": lambda _, text: int(text),
    "complex": lambda _, real, imag: complex(real, imag),
    "scalar": lambda _, dtype, data: np.frombuffer(data, np.dtype(dtype))[0],
    "tensor": _Decoder.tensor,
    "again": _Decoder.again,
    "array": _Decoder.array,
    "text": lambda _, text: np.str_(text),
    "bytes": lambda _, data: np.bytes_(data),
    "dict": _Decoder.mapping,
    "default": _Decoder.default,
    "list": lambda self, path, nodes: _rebuild(path, list, self.items(nodes)),
    "tuple": lambda self, path, nodes: _rebuild(path, tuple, self.items(nodes)),
    "named": lambda self, path, nodes: named_of(_find_class(path), self.items(nodes)),
}


def _encode_plain(value: object) -> Node:
    if type(value) is np.str_:
        return ["text", str(value)]
    if type(value) is np.bytes_:
        return ["bytes", bytes(value)]
    if isinstance(value, np.generic):
        return ["scalar", _array_dtype(value.dtype), value.tobytes()]
    if type(value) is int and value not in _INT64:
        return ["int", str(value)]
    if type(value) is complex:
        return ["complex", value.real, value.imag]
    if value is None or type(value) in _PLAIN:
        return ["plain", value]
    raise _unfit(f"holds a {type(value).__module__}.{type(value).__qualname__}")


def _rebuild(path: str | None, kind: type, items: list[Batch]) -> Batch:
    return (_find_class(path) if path else kind)(items)


def _class_path(value: object, builtin: type | None) -> str | None:
    """Return where the class of a container is found; None if it is the built-in one."""
    kind = type(value)
    return None if kind is builtin else _maker_path(kind)


def _maker_path(maker: Callable[..., object] | None) -> str | None:
    """Return where a class or function is found; None if there is none."""
    if maker is None:
        return None
    name = getattr(maker, "__qualname__", type(maker).__qualname__)
    path = f"{getattr(maker, '__module__', '')}:{name}"
    try:
        is_there = _find_class(path) is maker
    except (ImportError, AttributeError, ValueError):
        is_there = False
    if not is_there:
        raise _unfit(f"holds a {name}, which another process cannot find by its name")
    return path


def _find_class(path: str) -> Callable[..., Batch]:
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    made: Callable[..., Batch] = found
    return made


def _array_dtype(dtype: np.dtype[Any]) -> str:
    if dtype.hasobject or dtype.names is not None or dtype.kind == "V":
        raise _unfit(f"holds a numpy array of {dtype}")
    return dtype.str


def _unfit(what: str) -> JobError:
    return JobError(
        f"a batch {what}, which a loader worker cannot hand to its rank",
        fix=_FIX,
    )
