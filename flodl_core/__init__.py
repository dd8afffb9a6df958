"""flodl: heterogeneous, elastic data-parallel training for PyTorch.

The public names are resolved when they are first used, so that importing this
package loads neither torch nor anyio; the launcher, the agent and the relay
rely on that.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flodl_core.training.job import TrainJob

__version__ = "0.1.0"
__all__ = ["TrainJob", "__version__"]

_PUBLIC = {"TrainJob": "flodl_core.training.job"}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    from importlib import import_module

    if name not in _PUBLIC:
        raise AttributeError(f"module 'flodl_core' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
