"""The loud word about a peer that is reached over networks of strangers without TLS.

What it is: one warning an address, to the operator, the log and the record.
What it is not: a refusal; who binds to such an address wants to be reached there.
Who drives it: the port, for each link and each HTTP request of a run without --tls.
"""

from collections.abc import Callable
from typing import Final

from flodl_core.config.addresses import is_private_or_local
from flodl_core.telemetry.line_file import show_untrusted

MOST_ADDRESSES: Final = 256
"""Warned of by name; a flood from more says nothing new."""

FIX_EXPOSED: Final = (
    "start the run with --tls, or reach it through a tunnel such as `flodl join --ssh`"
)


class ExposureWatch:
    """Warns once of each address.

    Args:
        tell: takes the address and one sentence.
    """

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def served(self, address: str) -> None:
        """Take the address of a peer that was served plainly."""
        if address in self._told or len(self._told) >= MOST_ADDRESSES:
            return
        if is_private_or_local(address):
            return
        self._told.add(address)
        self._tell(address, exposure_of(address))


def exposure_of(address: str) -> str:
    """Return what an address without TLS means, as one sentence."""
    return (
        f"{show_untrusted(address)} lies outside private networks and this run has no --tls: "
        "control messages, the state and the operator's token can be read on the way"
    )
