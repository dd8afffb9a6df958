"""What a setting must obey beyond its type, in rules that more than one table uses.

What it is: checks of devices, tokens, the wire, anchors, losses, periods and paths, each with
its fix.
What it is not: types, ranges and defaults; those are in `schema`.
Who drives it: `schema` when it builds a table, `load` for a token out of a file, whoever
hands a path to another process.
"""

import math
import re
from pathlib import Path
from typing import Final

from flodl_core.config.join_token import is_fingerprint, is_join_token, is_secret
from flodl_core.errors import ConfigError
from flodl_core.ids import WireDtype

GIVEN: Final = "given"
"""The source of a value in a model that was built by hand."""

RUN_FIX: Final = "copy the run's token file, or leave it unset to have one generated"
JOIN_FIX: Final = "copy the file `token` of the run's directory from the launcher's machine"

_DEVICE: Final = re.compile(r"all|mps|cpu|cuda|(?:cpu|cuda):\d{1,4}")
_LOSSES: Final = re.compile(r"(\d{1,6}|\d{1,3}(?:\.\d{1,4})?(?=%))(%?)")
_DESTINATION: Final = re.compile(r"[^\s\-\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*")
_DIALLED: Final = re.compile(r"\[?[0-9A-Za-z][0-9A-Za-z._%-]*(:[0-9A-Za-z:._%-]*)?\]?(:\d{1,5})?")


def review_token(
    field: str,
    token: str | None,
    *,
    source: str = GIVEN,
    fix: str = RUN_FIX,
    may_pin: bool = False,
) -> None:
    """Refuse a token that is not 16 bytes in hex; the text never repeats it.

    Args:
        field: the setting.
        token: its value; None is not given.
        source: where it comes from.
        fix: RUN_FIX where this end may make one, JOIN_FIX where it joins a run.
        may_pin: whether the fingerprint of a certificate may follow.

    Raises:
        ConfigError: it is not 32 hex characters; where it may pin, a fingerprint may follow.
    """
    if token is not None and not (is_join_token(token) if may_pin else is_secret(token)):
        pinned = ", for a run with --tls a dot and 64 more" if may_pin else ""
        raise ConfigError(
            field,
            "(hidden)",
            f"a token is 32 hex characters{pinned}, and this one has {len(token)} characters",
            source=source,
            fix=fix,
        )


def review_fingerprint(field: str, text: str | None) -> None:
    """Refuse a fingerprint that is not the SHA-256 of a certificate in hex.

    Raises:
        ConfigError: it is not 64 hex characters.
    """
    if text is not None and not is_fingerprint(text):
        raise ConfigError(
            field,
            text,
            f"a fingerprint is 64 hex characters, and this one has {len(text)} characters",
            source=GIVEN,
            fix="copy it from the line that the launcher prints for other hosts",
        )


def review_wire(wire: WireDtype, mode: str) -> None:
    """Refuse a narrow wire where tensors do not travel over ours.

    Raises:
        ConfigError: the mode is one of NCCL's.
    """
    if wire is not WireDtype.F32 and mode.startswith("nccl"):
        raise ConfigError(
            "wire_dtype",
            wire.value,
            f"is for the CPU modes, and mode is {mode}: NCCL moves every tensor in its own type",
            source=GIVEN,
            fix="leave wire_dtype at f32, or use cpu_sync, cpu_cadence or cpu_async",
        )


def review_devices(devices: tuple[str, ...]) -> None:
    """Refuse devices that cannot be meant.

    Raises:
        ConfigError: none, an unknown one, one twice, or a group beside single ones.
    """
    text = ",".join(devices)
    wrong = next((word for word in devices if not _DEVICE.fullmatch(word)), None)
    if wrong is not None or not devices:
        reason = "no device is named" if wrong is None else f"{wrong!r} is not a device"
        fix = "give all, cpu, cuda, mps, cuda:N or cpu:N, separated by commas"
    elif len(set(devices)) < len(devices):
        reason, fix = "a device is named twice", "name each device once"
    elif len(devices) > 1 and {"all", "cpu", "cuda"} & set(devices):
        reason, fix = "all, cpu and cuda stand alone", "name single devices, such as cuda:0,cuda:1"
    else:
        return
    raise ConfigError("devices", text, reason, source=GIVEN, fix=fix)


def review_label(field: str, text: str | None) -> None:
    """Refuse a host's label that no run would admit.

    Raises:
        ConfigError: it is blank, or holds a character that does not print.
    """
    if text is None or (text.strip() and text.isprintable()):
        return
    raise ConfigError(
        field,
        text,
        "is no label of a host: it is blank, or holds a character that does not print",
        source=GIVEN,
        fix="give a short name, such as blue",
    )


def review_destination(field: str, text: str | None) -> None:
    """Refuse what the command ssh would read as an option, or as more than one word.

    Raises:
        ConfigError: it begins with a dash, or holds a space or a control character.
    """
    if text is None or _DESTINATION.fullmatch(text):
        return
    raise ConfigError(
        field,
        text,
        "is no destination of ssh",
        source=GIVEN,
        fix="give HOST, USER@HOST or a name of the ssh configuration",
    )


def review_advertise(text: str | None) -> None:
    """Refuse what no machine could dial: it becomes a part of commands and addresses.

    Raises:
        ConfigError: it holds a space, a control character or no host.
    """
    if text is None or _DIALLED.fullmatch(text):
        return
    raise ConfigError(
        "advertise",
        text,
        "is neither a host name nor an address",
        source=GIVEN,
        fix="give HOST or HOST:PORT, such as 10.0.0.5 or [fd00::5]:1337",
    )


def review_anchors(min_anchor: int | None, max_anchor: int) -> None:
    """Refuse bounds of the window that leave nothing between them.

    Raises:
        ConfigError: the lower one is above the upper one.
    """
    if min_anchor is not None and min_anchor > max_anchor:
        raise ConfigError(
            "min_anchor",
            min_anchor,
            f"it is above max_anchor = {max_anchor}",
            source=GIVEN,
            fix=f"give at most {max_anchor}, or raise max_anchor",
        )


def review_max_failure(text: str | None) -> None:
    """Refuse a limit of losses that is neither a number of ranks nor a percentage.

    Raises:
        ConfigError: it is neither, or allows no loss to begin with.
    """
    if text is None:
        return
    found = _LOSSES.fullmatch(text.strip())
    if found is None or not float(found[1]) > 0 or (found[2] and float(found[1]) > 100):
        raise ConfigError(
            "max_failure",
            text,
            "it is no number of ranks above 0 and no percentage up to 100%",
            source=GIVEN,
            fix="give a number such as 2, or a percentage such as 50%",
        )


def losses_allowed(text: str | None, world_size: int) -> int | None:
    """Return how many lost ranks end a run of so many; None if no number does.

    Args:
        text: `max_failure`, reviewed.
        world_size: ranks of the world.
    """
    if text is None:
        return None
    number, percent = text.strip().removesuffix("%"), "%" in text
    if not percent:
        return int(number)
    return max(1, math.ceil(float(number) * world_size / 100))


def review_period(field: str, period_s: float, *, least_s: float) -> None:
    """Refuse a time between two events that is neither 0, for never, nor long enough.

    Raises:
        ConfigError: it lies between 0 and `least_s`.
    """
    if 0 < period_s < least_s:
        raise ConfigError(
            field,
            period_s,
            f"must be 0 or at least {least_s:g}",
            source=GIVEN,
            fix=f"give at least {least_s:g} seconds, or 0 for never by the clock",
        )


def review_encoding(field: str, path: Path, *, source: str = GIVEN) -> None:
    """Refuse a path that no message can hold: the processes of a run are told their paths.

    Raises:
        ConfigError: its name, or that of a directory above it, is not UTF-8.
    """
    whole = str(path.absolute())
    try:
        whole.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            field,
            whole,
            "its name, or that of a directory above it, is not UTF-8",
            source=source,
            fix="give a path with another name, or rename the directory",
        ) from None
