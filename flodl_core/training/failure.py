"""The record of a rank whose training failed, written by the rank itself."""

from flodl_core.checkpoint.death_record import DeathFacts, DeathKind, write_death_record
from flodl_core.net import clock
from flodl_core.training.seat import Seat


def record_failure(seat: Seat, error: str) -> None:
    """Write the death record beside the checkpoint, if there is a place for it.

    Args:
        seat: the rank that failed.
        error: one line.
    """
    death = DeathFacts(
        rank=seat.rank,
        world_size=seat.envelope.world_size,
        host=seat.host.host,
        kind=DeathKind.EXCEPTION,
        error=error,
    )
    write_death_record(seat.envelope.spec.save_path, death, at=clock.utc_iso())
