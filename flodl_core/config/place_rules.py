"""How hosts are placed, where only several settings together say it.

What it is: the kind that `auto` means, refusals of a kind that has nobody to place, and the
token that a tunnel needs.
What it is not: the placing; that is `flodl_core.placement`.
Who drives it: `load`, once the tables are built.
"""

from flodl_core.config.addresses import is_loopback_address
from flodl_core.config.schema import JoinConfig, RunConfig
from flodl_core.config.sources import Resolved, Source, SourceKind
from flodl_core.config.workers import PlacementKind
from flodl_core.errors import ConfigError


def derive_placement(
    run: RunConfig,
    join: JoinConfig,
    values: dict[str, Resolved[object]],
    *,
    n_workers: int,
) -> tuple[RunConfig, JoinConfig]:
    """Return both tables with the kind of placement resolved.

    A tunnel of ssh ends at the loopback of a machine that others use too, so that a run
    which is reached through one asks for the token even though it binds loopback.

    Args:
        run: as built.
        join: as built.
        values: what was given; gets what is derived.
        n_workers: hosts that the file lists.

    Raises:
        ConfigError: there is nobody to place in that way.
    """
    given = values.get("run.placement")
    source = str(given.source) if given is not None else "default"
    kind = run.placement
    if kind is PlacementKind.AUTO:
        kind = PlacementKind.SSH if n_workers else PlacementKind.LOCAL
        where = "from the workers of the file" if n_workers else "as no workers are listed"
        values["run.placement"] = Resolved(kind, Source(SourceKind.DERIVED, where))
        run = run.model_copy(update={"placement": kind})
    _refuse_nobody(run, n_workers, source)
    if kind is PlacementKind.SSH and is_loopback_address(join.bind) and not join.require_token:
        where = "from placement ssh, whose tunnels end at a shared loopback"
        values["join.require_token"] = Resolved(
            value=True, source=Source(SourceKind.DERIVED, where)
        )
        join = join.model_copy(update={"require_token": True})
    return run, join


def _refuse_nobody(run: RunConfig, n_workers: int, source: str) -> None:
    kind = run.placement
    if kind is PlacementKind.SSH and not n_workers:
        reason, fix = "no host is listed", "list each host as [[workers]] in flodl.toml"
    elif kind in (PlacementKind.SLURM, PlacementKind.RAY) and n_workers:
        reason = f"the file lists {n_workers} workers, which only ssh reaches"
        fix = "give --placement ssh, or take [[workers]] out of the file and give --hosts N"
    elif kind in (PlacementKind.SLURM, PlacementKind.RAY) and run.hosts < 2:
        reason = "no host beside the launcher's own is asked for"
        fix = "give --hosts N, the launcher's own included"
    else:
        return
    raise ConfigError("placement", kind.value, reason, source=source, fix=fix)
