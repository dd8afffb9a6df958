"""A real run with --tls: who gets in, who is refused by name, and that commands know it."""

import json
import socket
import ssl

import httpx
import pytest
from harness import LONG_S, SHORT_S, Launched

from flodl_core.config.join_token import read_join_token
from flodl_core.net.tls import pinned_context
from flodl_core.net.tls_identity import make_identity
from flodl_core.wire.handshake import operator_token

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.long
def test_a_run_with_tls_from_the_window_to_the_end(launch, tmp_path) -> None:
    run: Launched = launch(
        *("synthetic", "--tls", "--require-token", "--start", "manual", "--epochs", "100000"),
        *("--job-arg", "params=1000", "--step-ms", "5"),
    )
    run.until_said("note", "to add a host", SHORT_S)
    token = read_join_token(run.token_file.read_text().strip())
    assert token.fingerprint is not None

    refuse_who_does_not_know_the_run(run, tmp_path)

    guest = run.start_flodl(
        *("join", run.address, "--host", "guest", "--ranks", "1", "--job", "synthetic"),
        *("--token-file", str(run.token_file)),
    )
    run.until_said("joined", "guest", LONG_S)
    started = run.flodl("start")
    assert started.code == 0, started
    run.until(
        "training that the guest takes part in",
        lambda: (
            read_state(run, token.fingerprint)["training"] is not None
            and read_state(run, token.fingerprint)["training"]["samples_done"] > 200
        ),
    )
    state = read_state(run, token.fingerprint)
    assert {row["host"] for row in state["ranks"]} >= {"guest"}
    assert state["dropped_connections"] == {"plain": 2, "distrusted": 1, "bad_tls": 1}

    status = run.flodl("status", "--json")
    assert json.loads(status.out)["run"]["id"] == state["run"]["id"]
    elsewhere = run.flodl(
        "status", run.address, "--run-dir", "nowhere", "--token-file", str(run.token_file)
    )
    assert elsewhere.code == 0, elsewhere

    assert run.flodl("stop").code == 0
    assert run.finish(leaves_guest=True) == 4
    said = guest.finish(SHORT_S)
    assert said.code == 0, said
    run.check_nothing_left()
    run.check_quiet()
    assert run.summary["alerts"] == {}


def read_state(run: Launched, fingerprint: bytes) -> dict:
    bearer = read_bearer(run)
    with httpx.Client(verify=pinned_context(fingerprint), trust_env=False, timeout=10) as client:
        answer = client.get(f"https://{run.address}/state.json", headers=bearer)
    assert answer.status_code == 200, answer.text
    return answer.json()


def read_bearer(run: Launched) -> dict[str, str]:
    secret = read_join_token(run.token_file.read_text().strip()).secret
    return {"Authorization": f"Bearer {operator_token(secret)}"}


def refuse_who_does_not_know_the_run(run: Launched, place) -> None:
    """Four strangers, each told by name why it is not let in."""
    token = read_join_token(run.token_file.read_text().strip())
    bare, other = place / "bare", place / "other"
    bare.write_text(token.secret.hex())
    other.write_text(f"{token.secret.hex()}.{make_identity().fingerprint.hex()}")
    for path, word in ((bare, "--tls"), (other, "another certificate")):
        said = run.flodl("join", run.address, "--job", "synthetic", "--token-file", str(path))
        assert said.code == 3, said
        assert word in said.err
        assert token.secret.hex() not in said.err + said.out
    plain = httpx.get(f"http://{run.address}/state.json", trust_env=False, timeout=10)
    assert plain.status_code == 400
    assert "TLS" in plain.json()["error"]
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", run.port), timeout=10) as sock,
        pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"),
    ):
        old.wrap_socket(sock)
