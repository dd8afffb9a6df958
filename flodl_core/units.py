"""The units that names carry, and the sizes that more than one package must agree on."""

from typing import Final, TypeAlias

Seconds: TypeAlias = float
"""A monotonic instant or a duration, in seconds."""

Milliseconds: TypeAlias = float

KIB: Final = 1024
MIB: Final = 1024 * 1024

BUCKET_BYTES: Final = 4 * MIB
"""One bucket of a round: 2**20 f32 values. Measured: 1 to 16 MiB is flat."""

PIECE_BYTES: Final = 1 * MIB
"""Largest run of bytes that a connection writes before it serves control again."""

MAX_PAYLOAD_BYTES: Final = 16 * MIB
"""Largest message payload on any channel."""

STORAGE_ALIGN_BYTES: Final = 64
"""Every storage of the flat layout begins at a multiple of this."""

FLOAT32_MAX: Final = 3.4028234663852886e38
"""The largest finite value of the f32 wire."""
