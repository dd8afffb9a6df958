"""Which modules of the product a process of the chaos suite finds, and what is added to them.

A rank's process is the product's own (`roles.rank`, its bridge, its channel); only the
modules of `flodl_core.training` that load torch are found in this folder instead. Other
modules are the product's; some get a stopping place after they are loaded.
"""

import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

STAND_INS = Path(__file__).with_name("training")
TRAINING = "flodl_core.training."
STOPPING_PLACES = {
    "flodl_core.planes.star_relay": "star_relay",
    "flodl_core.planes.root_cycle": "root_cycle",
    "flodl_core.roles.saving": "saving",
    "flodl_core.telemetry.recorder": "recorder",
}


class ChaosFinder(importlib.abc.MetaPathFinder):
    """Stands before the interpreter's own finders.

    Args:
        stands_in: whether ranks train without torch.
    """

    def __init__(self, *, stands_in: bool) -> None:
        self._stands_in = stands_in

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where a module comes from, for those that are not found as always."""
        if name.startswith(TRAINING) and self._stands_in:
            file = STAND_INS / f"{name.removeprefix(TRAINING)}.py"
            if file.exists():
                return importlib.util.spec_from_file_location(name, file)
        if name not in STOPPING_PLACES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithStoppingPlace(spec.loader, STOPPING_PLACES[name])
        return spec


class _WithStoppingPlace(importlib.abc.Loader):
    """Loads a module, then lets `chaos_places` add to it."""

    def __init__(self, own: importlib.abc.Loader, place: str) -> None:
        self._own = own
        self._place = place

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        import chaos_places

        add: Callable[[ModuleType], None] = getattr(chaos_places, f"in_{self._place}")
        add(module)
