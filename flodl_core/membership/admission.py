"""Whether a host may join: one rule, the first failing test decides.

What it is: a pure rule from a hello, the members and what is expected to
`Admitted` or `Refused`, with the cause and the fix.
What it is not: the window; a refusal leaves it open and uses no rank numbers.
Who drives it: `MembershipLedger`, for each hello.

Optional facts that either side lacks gate nothing. Names that a peer chose are
printed escaped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from flodl_core.ids import Mode
from flodl_core.membership.roster import Expected, Member, gpu_vendor
from flodl_core.messages.join import JoinHello

MAX_DEVICES: Final = 256
MAX_NAME_CHARS: Final = 200
MAX_HOST_CHARS: Final = 255


@dataclass(frozen=True, slots=True)
class Admitted:
    """The host may join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The host may not join."""

    reason: str
    fix: str
    transient: bool = False
    """True if a later dial may be admitted with nothing changed on the host."""


Admission = Admitted | Refused
_Test = Callable[[JoinHello, Sequence[Member], Expected], Refused | None]


def review_admission(hello: JoinHello, members: Sequence[Member], expected: Expected) -> Admission:
    """Return whether the host may join, by the first test that fails.

    Args:
        hello: what the host says of itself.
        members: those who are in.
        expected: the run's facts, with gaps filled by `seed_expected`.
    """
    for test in _TESTS:
        refused = test(hello, members, expected)
        if refused is not None:
            return refused
    return Admitted()


def refuse_late(state: str) -> Refused:
    """Return the refusal of a host that comes while no window is open.

    Args:
        state: of the window, such as `closed: training`.
    """
    return Refused(
        reason=f"the join window is {state}",
        fix="dial again, when a window is open",
        transient=True,
    )


def _host_is_named(hello: JoinHello, _: Sequence[Member], __: Expected) -> Refused | None:
    if hello.host.strip():
        return None
    return Refused(reason="the host name is blank", fix="give this host a name with --host")


def _words_are_plain(hello: JoinHello, _: Sequence[Member], __: Expected) -> Refused | None:
    """Names go into logs, records and terminals: they are short and print as they are."""
    if not _is_plain(hello.host, MAX_HOST_CHARS):
        return Refused(
            reason=f"the host name {_shown(hello.host)} is longer than {MAX_HOST_CHARS} "
            "characters, or has some that do not print",
            fix="give this host a short name of printing characters with --host",
        )
    words = (*hello.local_devices, *hello.gpus, hello.torch_variant, hello.nccl_version or "")
    odd = next((word for word in words if not _is_plain(word, MAX_NAME_CHARS)), None)
    if odd is None and len(hello.gpus) <= MAX_DEVICES:
        return None
    what = "more GPUs than devices may be" if odd is None else f"the odd name {_shown(odd)}"
    return Refused(
        reason=f"the host describes itself with {what}",
        fix="run the same flodl version on every host",
    )


def _has_devices(hello: JoinHello, _: Sequence[Member], __: Expected) -> Refused | None:
    if hello.local_devices:
        return None
    return Refused(
        reason="the device list must be non-empty",
        fix="give this host a device with --devices, such as cpu",
    )


def _is_not_too_large(hello: JoinHello, _: Sequence[Member], __: Expected) -> Refused | None:
    count = len(hello.local_devices)
    if count <= MAX_DEVICES:
        return None
    return Refused(
        reason=f"{count} devices exceeds the per-worker cap of {MAX_DEVICES}",
        fix="start several agents, each with a part of the devices and its own --host",
    )


def _devices_differ(hello: JoinHello, _: Sequence[Member], __: Expected) -> Refused | None:
    seen: set[str] = set()
    for device in hello.local_devices:
        if device in seen:
            return Refused(
                reason=f"duplicate local device {_shown(device)}",
                fix="name each device once in --devices",
            )
        seen.add(device)
    return None


def _host_is_new(hello: JoinHello, members: Sequence[Member], _: Expected) -> Refused | None:
    other = next((member for member in members if member.host == hello.host), None)
    if other is None:
        return None
    return Refused(
        reason=f"a host named {_shown(hello.host)} already joined from {other.address}",
        fix="give this host another name with --host, or end the agent that has it",
    )


def _same_dataset(hello: JoinHello, _: Sequence[Member], expected: Expected) -> Refused | None:
    if expected.dataset_sig is None or hello.dataset_sig == expected.dataset_sig:
        return None
    lengths = ""
    if expected.n_samples is not None and expected.n_samples != hello.n_samples:
        lengths = f": the run has {expected.n_samples} samples, this host {hello.n_samples}"
    return Refused(
        reason=f"dataset signature mismatch{lengths or _prefixes(expected.dataset_sig, hello)}",
        fix="give this host the run's data, in the same order, and the same dataset_version",
    )


def _same_vendor(hello: JoinHello, _: Sequence[Member], expected: Expected) -> Refused | None:
    ours, theirs = gpu_vendor(expected.torch_variant), gpu_vendor(hello.torch_variant)
    if not _is_nccl(expected) or ours is None or theirs is None or ours == theirs:
        return None
    return Refused(
        reason=f"vendor mismatch: the run averages with NCCL on {ours} "
        f"({_shown(expected.torch_variant or '')}), this host has {theirs} "
        f"({_shown(hello.torch_variant)})",
        fix="launch the run with --mode cpu_cadence, which mixes vendors",
    )


def _has_gpus(hello: JoinHello, _: Sequence[Member], expected: Expected) -> Refused | None:
    other = next((name for name in hello.local_devices if not name.startswith("cuda")), None)
    if not expected.needs_gpus or other is None:
        return None
    return Refused(
        reason=f"no GPU: the run averages with NCCL, and a rank here would have {_shown(other)}",
        fix="join with --devices cuda, or launch the run with --mode cpu_cadence",
    )


def _same_run(hello: JoinHello, _: Sequence[Member], expected: Expected) -> Refused | None:
    if hello.run_id is None or expected.run_id is None or hello.run_id == expected.run_id:
        return None
    return Refused(
        reason=f"run identity mismatch: this is run {_shown(expected.run_id[:8])}, "
        f"the host wants {_shown(hello.run_id[:8])}",
        fix="dial again and read the run id afresh",
        transient=True,
    )


def _same_nccl(hello: JoinHello, _: Sequence[Member], expected: Expected) -> Refused | None:
    ours, theirs = expected.nccl_version, hello.nccl_version
    if not _is_nccl(expected) or ours is None or theirs is None:
        return None
    if ours.split(".")[:2] == theirs.split(".")[:2]:
        return None
    return Refused(
        reason=f"NCCL version skew: the run has {_shown(ours)}, this host {_shown(theirs)}",
        fix="pip install the torch of the launcher's host, or launch with --mode cpu_cadence",
    )


def _same_model(hello: JoinHello, _: Sequence[Member], expected: Expected) -> Refused | None:
    ours, theirs = expected.model_sig, hello.model_sig
    if ours is None or theirs is None or ours == theirs:
        return None
    return Refused(
        reason=f"model mismatch: the run has {_shown(ours[:8])}, this host {_shown(theirs[:8])}"
        + _first_difference(expected.model_entries, hello.model_entries),
        fix="build the same model on this host: the same code, arguments and versions",
    )


def _same_layout(hello: JoinHello, _: Sequence[Member], expected: Expected) -> Refused | None:
    ours, theirs = expected.geometry_sig, hello.geometry_sig
    if ours is not None and theirs is not None and ours != theirs:
        return Refused(
            reason="layout mismatch: the tensors are the same by name, shape and type, but not "
            "which of them are tied or views of each other",
            fix="tie the same tensors on this host as on the launcher's",
        )
    ours, theirs = expected.wire_dtype, hello.wire_dtype
    if ours is not None and theirs is not None and ours != theirs:
        return Refused(
            reason=f"wire dtype mismatch: the run sends {_shown(ours)}, this host {_shown(theirs)}",
            fix="use the flodl version of the launcher's host",
        )
    return None


_TESTS: Final[tuple[_Test, ...]] = (
    _host_is_named,
    _words_are_plain,
    _has_devices,
    _is_not_too_large,
    _devices_differ,
    _host_is_new,
    _same_dataset,
    _has_gpus,
    _same_vendor,
    _same_run,
    _same_nccl,
    _same_model,
    _same_layout,
)


def _is_plain(word: str, most_chars: int) -> bool:
    return len(word) <= most_chars and word.isprintable()


def _is_nccl(expected: Expected) -> bool:
    return expected.mode in (Mode.NCCL_SYNC, Mode.NCCL_CADENCE)


def _first_difference(ours: tuple[str, ...], theirs: tuple[str, ...]) -> str:
    """Return the first tensor that differs, as both sides list it."""
    if not ours or not theirs:
        return ""
    for mine, other in zip_longest(ours, theirs):
        if mine != other:
            shown = [
                "no further tensor" if line is None else _shown(line) for line in (mine, other)
            ]
            return f"; first difference: the run has {shown[0]}, this host {shown[1]}"
    return ""


def _prefixes(expected_sig: str, hello: JoinHello) -> str:
    return f": the run has {_shown(expected_sig[:8])}, this host {_shown(hello.dataset_sig[:8])}"


def escaped(name: str) -> str:
    """Return a peer's word with control characters escaped, and bounded."""
    if len(name) > MAX_NAME_CHARS:
        name = name[:MAX_NAME_CHARS] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _shown(name: str) -> str:
    return f"'{escaped(name)}'"
