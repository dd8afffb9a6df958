"""Three hosts that know each other by no name: each joins and trains by the address it dialled."""

import os
from pathlib import Path

import pytest
from aftermath import check_each_once
from chaos_hosts import LAUNCHER_NAME, Hosts
from chaos_networks import why_not
from chaos_router import FAR_GATEWAY, FORWARD_OUTSIDE, FORWARDED_PORT, NAT_OUTSIDE
from chaos_world import RIG
from harness import SHORT_S, Launched

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "never"),
]

SAMPLES, PASSES = 96, 2


@pytest.mark.parametrize("tls", [(), ("--tls",)], ids=["plain", "tls"])
def test_nat_a_forwarded_port_and_wrong_names_keep_nobody_out(tls, tmp_path) -> None:
    """With TLS the router in between reads no host's name in any packet of the run."""
    hosts = Hosts()
    place = tmp_path / "run"
    (place / "marks").mkdir(parents=True)
    run = Launched(
        place,
        *("synthetic", "--job-arg", f"samples={SAMPLES}", "--job-arg", "batch_size=4"),
        *("--epochs", str(PASSES), "--sample-log", "auto", "--ranks", "1", *tls),
        *("--min-rank-start", "3", "--target-ranks", "3", "--bind", "0.0.0.0"),
        port=1337,
        extra={
            "PYTHONPATH": os.pathsep.join(filter(None, (str(RIG), os.environ.get("PYTHONPATH")))),
            "CHAOS_DIR": str(place / "marks"),
            "CHAOS_PARK": "",
            "CHAOS_RANKS": "",
        },
        through=hosts.through("launcher"),
    )
    try:
        check(run, hosts, place)
    finally:
        run.destroy()
        readable = hosts.close()
    assert (readable == 0) == bool(tls)


def check(run: Launched, hosts: Hosts, place: Path) -> None:
    run.until_said("note", "listens on", SHORT_S)
    guests = [
        run.start_flodl(
            *("join", address, "--host", f"guest-{part}", "--ranks", "1"),
            *("--run-dir", part, "--token-file", str(run.token_file)),
            through=hosts.through(part),
        )
        for part, address in (
            ("lan", f"{LAUNCHER_NAME}:1337"),
            ("far", f"{FAR_GATEWAY}:{FORWARDED_PORT}"),
        )
    ]
    assert run.finish(leaves_guest=True) == 0
    for guest in guests:
        said = guest.finish(SHORT_S)
        assert said.code == 0, said
    seen = {row["host"]: row["address"].rpartition(":")[0] for row in run.document["members"]}
    assert seen["guest-lan"] == NAT_OUTSIDE
    assert seen["guest-far"] == FORWARD_OUTSIDE
    check_each_once(
        run.directory / "samples.jsonl", samples=SAMPLES, each_pass=SAMPLES, passes=PASSES
    )
    assert run.summary["samples_trained"] == PASSES * SAMPLES
    assert {row["host"] for row in run.summary["ranks"]} >= {"guest-lan", "guest-far"}
    assert len({path.read_text() for path in (place / "marks").glob("*.digest")}) == 1
    run.check_quiet()
