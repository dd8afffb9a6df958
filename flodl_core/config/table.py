"""What every table of settings is, and the bounds that more than one of them has.

What it is: the base of the models, frozen and closed to keys that do not exist.
What it is not: a setting.
Who drives it: `schema`, `agent_schema` and `workers` build their tables on it.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict

MAX_RANKS_A_HOST: Final = 256
MAX_LOADER_WORKERS: Final = 64


class Settings(BaseModel):
    """One table of settings; frozen, and closed to keys that do not exist."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )
