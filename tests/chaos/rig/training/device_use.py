"""Stands in for `flodl_core.training.device_use`: there is no device to watch."""


class DeviceWatch:
    """Watches nothing."""

    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""
