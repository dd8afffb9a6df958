"""Whether a run can be reached from here: by the same settings as `flodl join` has."""

import contextlib
import os
from pathlib import Path

import anyio
import pytest
from net_pairs import TOKEN, running_port

from flodl_core.config.load import load_agent
from flodl_core.net.join_link import accept_join
from flodl_core.net.tls_identity import make_identity
from flodl_core.probe.checks import Finding
from flodl_core.roles.machine_probe import check_controller

IDENTITY = make_identity()


async def controller(connection):
    """Agree on keys, then wait for the end."""
    link = await accept_join(connection, token=TOKEN, open_admission=True)
    with contextlib.suppress(anyio.EndOfStream):
        await link.receive()


def probing(place, address, text="", **variables):
    (place / "flodl.toml").write_text(f"[agent]\n{text}\n")
    flags = {"controller": f"{address[0]}:{address[1]}"}
    return check_controller(load_agent(flags, environ=variables, directory=place))


@pytest.mark.anyio
async def test_the_fingerprint_of_a_variable_or_a_file_is_the_one_that_is_trusted(tmp_path):
    pinned, other = IDENTITY.fingerprint.hex(), make_identity().fingerprint.hex()
    async with running_port(on_join=controller, tls=IDENTITY.context, handshake_s=5.0) as port:
        at = port.at
        by_variable = await probing(tmp_path, at, FLODL_TLS_FINGERPRINT=pinned)
        by_file = await probing(tmp_path, at, f'tls_fingerprint = "{pinned}"')
        wrong = await probing(tmp_path, at, FLODL_TLS_FINGERPRINT=other)
    for (check,), _ in (by_variable, by_file):
        assert (check.finding, check.detail) == (
            Finding.OK,
            f"127.0.0.1:{at[1]} answers and admits",
        )
    ((check,), _) = wrong
    assert check.finding is Finding.ERROR
    assert "certificate" in check.detail


@pytest.mark.anyio
async def test_a_run_behind_a_gateway_is_looked_for_through_it(tmp_path, monkeypatch):
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nfor last; do :; done\necho "no way to $last" >&2\nexit 255\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}{os.pathsep}{os.environ['PATH']}")
    (check,), utc_s = await probing(Path(tmp_path), ("127.0.0.1", 9), 'ssh = "me@gateway"')
    assert (check.finding, utc_s) == (Finding.ERROR, None)
    assert "no tunnel through ssh me@gateway: no way to me@gateway" in check.detail


@pytest.fixture
def anyio_backend():
    return "asyncio"
