"""Which table of `flodl.toml` a setting belongs in: by subject, where there are many.

    [controller]  where the run listens, and whom it admits
    [elche]       how many batches each rank does
    [checkpoint]  what is saved, when, and from where a run goes on
    [record]      what is written down
    [run] [join] [agent] [net]   everything else, by the name that `flodl config` prints

What it is: names. `[run]` and `[join]` take the settings of their subjects too; one that is
given in two tables is refused.
What it is not: the settings; `[job]` is free in its keys, `[[workers]]` has `workers`.
Who drives it: `keys` and `file_values`.
"""

from collections.abc import Mapping
from typing import Final

SUBJECTS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "controller": (
        "join",
        frozenset(
            {
                "bind",
                "port",
                "advertise",
                "open_admission",
                "require_token",
                "token",
                "tls",
                "tls_identity",
                "insecure_nccl",
                "handshake_timeout_s",
            }
        ),
    ),
    "elche": (
        "run",
        frozenset(
            {
                "overhead_target",
                "anchor",
                "min_anchor",
                "max_anchor",
                "pin_counts",
                "max_batch_diff",
                "late_factor",
                "overshoot",
                "easgd_alpha",
                "guard",
                "guard_timeout_s",
                "meta",
                "relax_up",
                "speed_ratio",
                "partition_ratios",
            }
        ),
    ),
    "checkpoint": (
        "run",
        frozenset(
            {
                "save_path",
                "checkpoint_every_s",
                "checkpoint_every_epochs",
                "keep_checkpoints",
                "resume",
            }
        ),
    ),
    "record": ("run", frozenset({"run_dir", "sample_log", "on_event", "on_event_classes"})),
}
"""By table: the model whose settings it holds, and which of them."""


def file_table(table: str, name: str) -> str:
    """Return the table of the file that a setting belongs in.

    Args:
        table: of the setting's own name.
        name: the rest of it.
    """
    for subject, (model, names) in SUBJECTS.items():
        if model == table and name in names:
            return subject
    return table
