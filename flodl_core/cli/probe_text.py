"""What `flodl probe` prints: a line a check, and a table of what each mode would do.

What it is: text and JSON of one `Probed`.
What it is not: a rule; those are in `flodl_core.probe`.
Who drives it: `flodl probe`.
"""

import json
from dataclasses import asdict

from flodl_core.probe.checks import Check, Finding
from flodl_core.roles.machine_probe import Probed
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.quantities import show_bytes, show_number, show_percent, show_rate
from flodl_core.telemetry.summary import align_columns

_MARKS = {Finding.OK: "ok", Finding.WARNING: "warning", Finding.ERROR: "ERROR"}


def probe_lines(probed: Probed) -> list[str]:
    """Return the lines for a person."""
    rows: list[tuple[str, ...]] = [
        (_MARKS[one.finding], one.name, _said(one)) for one in probed.checks
    ]
    lines = align_columns(rows, left=(0, 1, 2))
    if probed.rates:
        lines += ["", f"{probed.job} on each device alone:", *_rates(probed)]
    if probed.estimate is not None:
        lines += ["", "expected together:", *_ways(probed), "", _model(probed)]
        lines.append(probed.estimate.verdict)
    return lines


def probe_json(probed: Probed) -> str:
    """Return one JSON document with everything."""
    document = {
        "machine": asdict(probed.machine),
        "torch": asdict(probed.torch) if probed.torch is not None else None,
        "checks": [asdict(one) for one in probed.checks],
        "has_errors": probed.has_errors,
        "job": probed.job,
        "rates": [{**asdict(rate), "samples_per_s": rate.samples_per_s} for rate in probed.rates],
        "estimate": None,
    }
    if probed.estimate is not None:
        document["estimate"] = asdict(probed.estimate)
    return json.dumps(document, indent=2)


def _said(check: Check) -> str:
    text = show_untrusted(check.detail)
    return f"{text} (fix: {show_untrusted(check.fix)})" if check.fix else text


def _rates(probed: Probed) -> list[str]:
    rows: list[tuple[str, ...]] = [("rank", "device", "samples/s", "ms a batch", "data", "first")]
    for rank, rate in enumerate(probed.rates):
        rows.append(
            (
                str(rank),
                rate.device,
                show_rate(rate.samples_per_s),
                show_number(rate.batch_ms),
                show_number(rate.data_ms),
                show_number(rate.first_ms),
            )
        )
    return align_columns(rows, left=(1,))


def _ways(probed: Probed) -> list[str]:
    assert probed.estimate is not None
    rows: list[tuple[str, ...]] = [("", "samples/s", "of the sum", "batches in a window")]
    for way in probed.estimate.ways:
        counts = ",".join(map(str, way.counts)) if way.counts else "-"
        rows.append((way.name, show_rate(way.samples_per_s), show_percent(way.share), counts))
    return align_columns(rows, left=(0,))


def _model(probed: Probed) -> str:
    assert probed.estimate is not None
    first = probed.rates[0]
    return (
        f"An averaging is reckoned at {probed.estimate.averaging_s * 1e3:.3g} ms, for a model of "
        f"{show_bytes(first.model_bytes)} copied at {first.copy_bytes_per_s / 1e9:.3g} GB/s"
        f"{_nccl_model(probed)}; docs/performance.md has measured figures."
    )


def _nccl_model(probed: Probed) -> str:
    assert probed.estimate is not None
    rate, spent_s = probed.rates[0], probed.estimate.nccl_averaging_s
    if spent_s is None or rate.peer_bytes_per_s is None:
        return ""
    return (
        f"; on NCCL at {spent_s * 1e3:.3g} ms, at {rate.peer_bytes_per_s / 1e9:.3g} GB/s from GPU "
        "to GPU"
    )
