"""What tls asks of tokens, modes and binds, before anything listens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.config.join_token import JoinToken, is_join_token, read_join_token
from flodl_core.config.load import load_agent, load_run
from flodl_core.config.schema import JoinConfig
from flodl_core.config.tls_rules import review_nccl, why_no_nccl
from flodl_core.config.window import join_warnings
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode

SECRET = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
FINGERPRINT = "4d5e" * 16


@given(st.binary(min_size=16, max_size=16), st.none() | st.binary(min_size=32, max_size=32))
def test_a_token_is_read_as_it_was_written(secret, fingerprint):
    token = JoinToken(secret=secret, fingerprint=fingerprint)
    text = token.text()
    assert text == secret.hex() + ("" if fingerprint is None else "." + fingerprint.hex())
    assert read_join_token(text) == token
    assert secret.hex() not in repr(token)


@given(st.text(max_size=120))
def test_any_other_text_is_no_token(text):
    if not is_join_token(text):
        with pytest.raises(ValueError, match="no join token"):
            read_join_token(text)


@pytest.mark.parametrize(
    "text",
    [SECRET + ".", SECRET + "." + "4d5e" * 15, SECRET[:-1] + "." + FINGERPRINT, "." + FINGERPRINT],
)
def test_half_a_token_is_none(text):
    assert not is_join_token(text)


def test_a_token_with_the_fingerprint_is_taken_from_a_file_and_from_the_environment(tmp_path):
    path, text = tmp_path / "token", f"{SECRET}.{FINGERPRINT}"
    path.write_text(f"{text}\n")
    assert load_agent({"token_file": str(path)}).agent.token == text
    environ = {"FLODL_TOKEN": text.upper()}
    assert load_agent({}, environ=environ).agent.token == text
    assert load_run({}, environ=environ).join.token == text, "commands that ask a run read it too"
    with pytest.raises(ConfigError, match=r"32 hex characters.* has 65 characters"):
        JoinConfig(token=text[32:])


def test_a_certificate_of_ones_own_is_for_tls(tmp_path):
    own = tmp_path / "identity.pem"
    assert JoinConfig(tls=True, tls_identity=own).tls_identity == own
    with pytest.raises(ConfigError, match="tls is off"):
        JoinConfig(tls_identity=own)


def test_a_fingerprint_of_another_length_is_refused_with_its_fix():
    assert load_agent({"tls_fingerprint": FINGERPRINT.upper()}).agent.tls_fingerprint == FINGERPRINT
    with pytest.raises(ConfigError, match="64 hex characters, and this one has 8") as caught:
        load_agent({"tls_fingerprint": "4d5e4d5e"})
    assert "the launcher prints" in caught.value.fix


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("is_insecure", [False, True])
@pytest.mark.parametrize("crosses_hosts", [False, True])
def test_nccl_across_hosts_of_a_run_with_tls_needs_the_owners_word(
    mode, has_tls, is_insecure, crosses_hosts
):
    words = {"has_tls": has_tls, "is_insecure": is_insecure, "crosses_hosts": crosses_hosts}
    refused = mode.value.startswith("nccl") and words == {
        "has_tls": True,
        "is_insecure": False,
        "crosses_hosts": True,
    }
    if refused:
        with pytest.raises(ConfigError, match="cannot be encrypted") as caught:
            review_nccl(mode, **words, source="command line")
        assert "--insecure-nccl" in caught.value.fix
        assert why_no_nccl(**words)
    else:
        review_nccl(mode, **words, source="command line")


def test_a_permission_for_nothing_is_refused():
    assert JoinConfig(tls=True, insecure_nccl=True).insecure_nccl
    with pytest.raises(ConfigError, match="permits something only in a run with tls"):
        JoinConfig(insecure_nccl=True)


@pytest.mark.parametrize(
    ("bind", "warned"),
    [
        ("8.8.8.8", True),
        ("2001:db8::1", True),
        ("10.0.0.5", False),
        ("0.0.0.0", False),
        ("127.0.0.1", False),
        ("::", False),
        ("fd00::5", False),
    ],
)
def test_a_public_bind_without_tls_is_warned_of_before_it_listens(bind, warned):
    told = [text for text in join_warnings(JoinConfig(bind=bind)) if "no private address" in text]
    assert bool(told) is warned
    assert join_warnings(JoinConfig(bind=bind, tls=True)) == ()
