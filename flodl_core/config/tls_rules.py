"""What --tls asks of the rest of a run.

What it is: the rule that NCCL, whose traffic nobody can seal, is not used between hosts
of a run with tls unless its owner says so; and what a certificate of one's own needs.
What it is not: TLS; `flodl_core.net.tls` has that.
Who drives it: `schema` when it builds a table, the launcher when the mode is known.
"""

from pathlib import Path

from flodl_core.config.rules import GIVEN
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode

NCCL_MODES = (Mode.NCCL_SYNC, Mode.NCCL_CADENCE)


def why_no_nccl(*, has_tls: bool, is_insecure: bool, crosses_hosts: bool) -> str | None:
    """Return why NCCL may not be used; None if it may.

    Args:
        has_tls: whether the run is one with --tls.
        is_insecure: whether `insecure_nccl` is set.
        crosses_hosts: whether ranks may lie on more than one machine.
    """
    if not has_tls or is_insecure or not crosses_hosts:
        return None
    return "tls is set, and what NCCL sends between hosts cannot be encrypted"


def review_nccl(
    mode: Mode, *, has_tls: bool, is_insecure: bool, crosses_hosts: bool, source: str
) -> None:
    """Refuse an NCCL mode across the hosts of a run with tls.

    Args:
        mode: the resolved one.
        has_tls: as `why_no_nccl`.
        is_insecure: likewise.
        crosses_hosts: likewise.
        source: where the mode came from.

    Raises:
        ConfigError: unless `insecure_nccl` is set.
    """
    why = why_no_nccl(has_tls=has_tls, is_insecure=is_insecure, crosses_hosts=crosses_hosts)
    if mode in NCCL_MODES and why is not None:
        raise ConfigError(
            "mode",
            mode.value,
            why,
            source=source,
            fix="use cpu_cadence, whose traffic is sealed, or give --insecure-nccl where the "
            "network between the hosts is trusted",
        )


def review_insecure_nccl(*, is_insecure: bool, has_tls: bool) -> None:
    """Refuse a permission that nothing asks for.

    Raises:
        ConfigError: `insecure_nccl` without `tls`.
    """
    if is_insecure and not has_tls:
        raise ConfigError(
            "insecure_nccl",
            is_insecure,
            "permits something only in a run with tls",
            source=GIVEN,
            fix="leave it out, or set tls",
        )


def review_identity(identity: Path | None, *, has_tls: bool) -> None:
    """Refuse a certificate that nobody is shown.

    Args:
        identity: file of the certificate, as configured.
        has_tls: whether the run is one with tls.

    Raises:
        ConfigError: `tls_identity` without `tls`.
    """
    if identity is not None and not has_tls:
        raise ConfigError(
            "tls_identity",
            str(identity),
            "is a certificate for a run with tls, and tls is off",
            source=GIVEN,
            fix="set tls too, or leave it out",
        )
