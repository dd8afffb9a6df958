"""The secrets of a run: made anew each time, or the user's own where one is set."""

import stat
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.config.join_token import read_join_token
from flodl_core.config.schema import JoinConfig
from flodl_core.errors import ConfigError
from flodl_core.net.tls_identity import make_pem, read_identity
from flodl_core.roles.run_secrets import make_secrets

SECRET = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


def with_identity(path, token=None):
    return make_secrets(JoinConfig(tls=True, tls_identity=path, token=token))


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def test_nothing_set_is_new_for_each_run():
    first, second = (make_secrets(JoinConfig(tls=True)).join_token for _ in range(2))
    assert first.secret != second.secret
    assert first.fingerprint != second.fingerprint
    plain = make_secrets(JoinConfig())
    assert (plain.has_tls, plain.join_token.fingerprint) == (False, None)


def test_a_token_that_is_set_is_the_one_of_the_run():
    text = make_secrets(JoinConfig(token=SECRET, tls=True)).join_token.text()
    assert text.startswith(f"{SECRET}.")
    assert make_secrets(JoinConfig(token=SECRET)).join_token.text() == SECRET


def test_a_certificate_is_made_once_for_its_owner_only_and_stays_the_same(tmp_path):
    path = tmp_path / "identity.pem"
    first = with_identity(path).join_token.fingerprint
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = path.read_bytes()
    assert with_identity(path).join_token.fingerprint == first
    assert path.read_bytes() == written


def test_a_token_that_names_the_certificate_goes_with_it_and_with_no_other(tmp_path):
    path = tmp_path / "identity.pem"
    text = with_identity(path, SECRET).join_token.text()
    assert with_identity(path, text).join_token == read_join_token(text)
    other = tmp_path / "other.pem"
    other.write_bytes(make_pem())
    with pytest.raises(ConfigError, match="the token names another") as caught:
        with_identity(other, text)
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match="No such file"):
        with_identity(tmp_path / "gone.pem", text)
    assert not (tmp_path / "gone.pem").exists(), "none is made that the token cannot name"


@pytest.mark.parametrize(
    ("has_tls", "reason"), [(True, "makes one of its own"), (False, "has no tls")]
)
def test_a_token_that_names_a_certificate_needs_it(has_tls, reason):
    text = f"{SECRET}.{'4d5e' * 16}"
    with pytest.raises(ConfigError, match=reason) as caught:
        make_secrets(JoinConfig(token=text, tls=has_tls))
    assert "first 32 characters" in caught.value.fix
    assert SECRET not in str(caught.value)


def test_a_pair_that_openssl_made_is_taken_in_any_order(tmp_path):
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=flodl"),
        *("-keyout", str(key), "-out", str(certificate)),
    )
    openssl("x509", "-in", str(certificate), "-outform", "der", "-out", str(tmp_path / "der"))
    for first, second in ((key, certificate), (certificate, key)):
        path = tmp_path / "identity.pem"
        path.write_bytes(first.read_bytes() + second.read_bytes())
        shown = with_identity(path).join_token.fingerprint.hex()
        told = subprocess.run(
            ["openssl", "dgst", "-sha256", "-r", str(tmp_path / "der")],
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.startswith(shown)


def test_a_file_that_cannot_serve_is_refused_with_the_reason(tmp_path):
    pem = make_pem()
    key, certificate = pem[: pem.index(b"-----BEGIN CERT")], pem[pem.index(b"-----BEGIN CERT") :]
    locked = tmp_path / "locked"
    (tmp_path / "key").write_bytes(key)
    openssl("pkey", "-in", str(tmp_path / "key"), "-aes256", "-passout", "pass:x", "-out", locked)
    for content, reason in (
        (b"", "no certificate"),
        (b"ssh-ed25519 AAAA", "no certificate"),
        (key, "no certificate"),
        (certificate, "no key"),
        (make_pem()[: len(key)] + certificate, "no key to its certificate"),
        (locked.read_bytes() + certificate, "passphrase"),
    ):
        path = tmp_path / "identity.pem"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=reason) as caught:
            with_identity(path)
        assert "identity.pem" in str(caught.value)
        assert caught.value.fix
    with pytest.raises(ConfigError, match="cannot be read or made"):
        with_identity(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read or made"):
        with_identity(tmp_path / "no" / "such" / "place.pem")


@given(st.binary(max_size=300))
def test_any_bytes_are_an_identity_or_a_value_error(data):
    with pytest.raises(ValueError, match="it holds no"):
        read_identity(b"-----BEGIN CERTIFICATE-----\n" + data)
