"""The address that other machines are told to dial."""

import platform

import pytest

from flodl_core.config.schema import JoinConfig
from flodl_core.messages.job import JobRef
from flodl_core.roles.run_parts import advertised, join_line


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "127.0.0.1:4000"),
        ({"bind": "10.0.0.5"}, "10.0.0.5:4000"),
        ({"bind": "0.0.0.0"}, f"{platform.node()}:4000"),
        ({"bind": "0.0.0.0", "advertise": "gate.example"}, "gate.example:4000"),
        ({"bind": "0.0.0.0", "advertise": "gate.example:80"}, "gate.example:80"),
        ({"advertise": "[fd00::5]:80"}, "[fd00::5]:80"),
        ({"advertise": "fd00::5"}, "[fd00::5]:4000"),
    ],
)
def test_the_address_is_the_one_that_was_given_else_the_binds(given, address):
    assert advertised(JoinConfig(**given), 4000) == address


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (JobRef(kind="recipe", name="charlm", args={}), ""),
        (JobRef(kind="module", name="jobs.small:job", args={}), ""),
        (JobRef(kind="file", name="mlp:train", args={}, sha256="0" * 64), " --job mlp.py:train"),
    ],
)
def test_the_line_to_join_names_a_file_as_its_own_command_line_would(job, words):
    line = join_line(job, JoinConfig(), 4000, ["--token-file", "/a b/token"])
    assert line == f"flodl join 127.0.0.1:4000 --token-file '/a b/token'{words}"
