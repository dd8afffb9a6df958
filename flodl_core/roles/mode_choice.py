"""The mode of a run against the devices that it got: refused early, or chosen when it forms.

What it is: what an NCCL mode asks of this command's own devices, and the choice that
`--mode auto` leaves until everybody is in.
What it is not: the rules; they are `config.mode`'s. Hosts that join are judged at
admission.
Who drives it: the launcher, before the window and when the world has formed.
"""

from collections.abc import Sequence
from dataclasses import replace

from flodl_core.config.mode import HostDevices, ResolvedMode, choose_mode
from flodl_core.config.schema import JoinConfig
from flodl_core.config.tls_rules import why_no_nccl
from flodl_core.config.values import AUTO
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode
from flodl_core.membership.events import FormWorld
from flodl_core.membership.roster import gpu_vendor
from flodl_core.roles.formation import RunPlan
from flodl_core.roles.stand_in import has_stand_in


def is_open(plan: RunPlan) -> bool:
    """Return whether the mode is chosen only when the world forms."""
    return plan.config.mode.strip().lower() == AUTO


def needs_gpus(mode: Mode) -> bool:
    """Return whether every rank must have a GPU; tests bring what needs none."""
    return mode.uses_nccl and not has_stand_in()


def review_devices(mode: Mode, devices: Sequence[Sequence[str]], *, source: str) -> None:
    """Refuse an NCCL mode for this command's own hosts where one of their devices is no GPU.

    Raises:
        ConfigError: one is; it is named.
    """
    if not needs_gpus(mode):
        return
    other = next((name for host in devices for name in host if not name.startswith("cuda")), None)
    if other is not None:
        raise ConfigError(
            "mode",
            mode.value,
            f"it averages among GPUs, and a rank here would have {other}",
            source=source,
            fix="use --mode cpu_cadence, or --devices cuda on a machine with GPUs",
        )


def choose_for(plan: RunPlan, formed: FormWorld, join: JoinConfig) -> RunPlan:
    """Return the plan with the mode of the world that formed, if nobody named one."""
    if not is_open(plan):
        return plan
    chosen = _choose(plan, formed, join)
    return replace(plan, mode=chosen.mode, mode_reason=chosen.reason)


def _choose(plan: RunPlan, formed: FormWorld, join: JoinConfig) -> ResolvedMode:
    hellos = [seat.member.hello for seat in formed.roster]
    objection = why_no_nccl(
        has_tls=join.tls, is_insecure=join.insecure_nccl, crosses_hosts=len(hellos) > 1
    )
    return choose_mode(
        [
            HostDevices(
                host=hello.host,
                devices=hello.local_devices,
                vendor=gpu_vendor(hello.torch_variant),
                nccl=hello.nccl_version,
            )
            for hello in hellos
        ],
        objection=objection or "",
    )
