"""The list of every setting: where a value may be given, and what it means.

What it is: a table derived from the schema, one row a setting.
What it is not: values.
Who drives it: `load` reads along it, `explain` prints along it, the command
line takes option names and help from it. A test freezes the set.
"""

from dataclasses import dataclass
from typing import Final

from pydantic.fields import FieldInfo

from flodl_core.config.agent_schema import AgentConfig
from flodl_core.config.file_tables import file_table
from flodl_core.config.schema import JoinConfig, NetConfig, RunConfig
from flodl_core.config.table import Settings

TABLES: Final[dict[str, type[Settings]]] = {
    "run": RunConfig,
    "join": JoinConfig,
    "agent": AgentConfig,
    "net": NetConfig,
}
"""The models by the first part of a setting's name."""

JOB_TABLE: Final = "job"
JOB_ARGS: Final = "run.job_args"

ENV_PREFIX: Final = "FLODL_"
ENV_CONFIG_FILE: Final = "FLODL_CONFIG"
ENV_CHILD_PREFIX: Final = "FLODL_CHILD_"
"""What our processes hand to their children; never a setting."""

SCALED: Final = frozenset(
    {
        "run.heartbeat_timeout_s",
        "run.progress_timeout_s",
        "run.first_batch_timeout_s",
        "run.stall_timeout_s",
        "run.rendezvous_timeout_s",
        "run.formation_timeout_s",
        "run.guard_timeout_s",
        "run.inspect_timeout_s",
        "run.place_timeout_s",
        "join.join_timeout_s",
        "join.max_join_timeout_s",
        "join.handshake_timeout_s",
        "agent.inspect_timeout_s",
    }
)
"""Ceilings, which grow with `net.timeout_scale`."""

SECRET: Final = frozenset({"join.token", "agent.token"})

_ENV: Final = {
    "net.timeout_scale": "FLODL_NET_TIMEOUT_SCALE",
    "agent.token": "FLODL_TOKEN",
    "agent.token_file": "FLODL_TOKEN_FILE",
    "agent.tls_fingerprint": "FLODL_TLS_FINGERPRINT",
    "agent.data": "FLODL_DATA",
}
_FLAG: Final = {
    "run.job": "JOB",
    "run.job_args": "--job-arg",
    "join.start_mode": "--start",
    "agent.controller": "HOST:PORT",
    "net.timeout_scale": "--net-timeout-scale",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting and the three places where it may be given."""

    table: str
    name: str
    flag: str
    """The option, or the word's name where it is given by position."""
    env: str | None
    """The environment variable; None if there is none."""
    doc: str
    example: str
    scaled: bool
    secret: bool
    file_table: str
    """The table of `flodl.toml` that it belongs in."""

    @property
    def dotted(self) -> str:
        """The name used everywhere: `table.name`."""
        return f"{self.table}.{self.name}"


def _env_name(table: str, name: str) -> str | None:
    dotted = f"{table}.{name}"
    if dotted == JOB_ARGS:
        return None
    if dotted in _ENV:
        return _ENV[dotted]
    middle = "AGENT_" if table == "agent" else ""
    return f"{ENV_PREFIX}{middle}{name.upper()}"


def _key(table: str, name: str, info: FieldInfo) -> Key:
    dotted = f"{table}.{name}"
    return Key(
        table=table,
        name=name,
        flag=_FLAG.get(dotted, "--" + name.replace("_", "-")),
        env=_env_name(table, name),
        doc=" ".join((info.description or "").split()),
        example=str((info.examples or ("",))[0]),
        scaled=dotted in SCALED,
        secret=dotted in SECRET,
        file_table=file_table(table, name),
    )


KEYS: Final[dict[str, Key]] = {
    key.dotted: key
    for table, model in TABLES.items()
    for name, info in model.model_fields.items()
    for key in (_key(table, name, info),)
}
"""Every setting by its dotted name, in the order in which it is printed."""
