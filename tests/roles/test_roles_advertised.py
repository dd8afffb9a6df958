"""The address that other machines are told to dial."""

import platform

import pytest

from flodl_core.config.schema import JoinConfig
from flodl_core.roles.run_parts import advertised


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
