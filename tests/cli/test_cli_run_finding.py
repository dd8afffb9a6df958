"""Which run is meant where none is named, and what is known of it."""

import os
from contextlib import ExitStack

import pytest
from cli_world import RUN_ID, TOKEN, run_directory

from flodl_core.errors import FlodlError
from flodl_core.run_finding import PortNotOpenError, find_wanted_run
from flodl_core.telemetry.run_directory import NoLiveRunError

YOUNG_ID = "fedcba9876543210"
FINGERPRINT = "4d5e" * 16


@pytest.fixture
def two_runs(place):
    """An older run that can be asked and a younger one that has not opened its port yet."""
    with ExitStack() as stack:
        old = stack.enter_context(run_directory(place / "runs", 4321))
        young = stack.enter_context(
            run_directory(place / "runs", None, name="day", run_id=YOUNG_ID)
        )
        os.utime(old.path / "live", (1_000, 1_000))
        yield old, young


def test_who_acts_at_once_gets_the_newest_run_or_none(two_runs):
    with pytest.raises(PortNotOpenError, match=f"day-{YOUNG_ID} has not opened its port") as told:
        find_wanted_run()
    assert told.value.fix == "ask again shortly"


def test_who_only_looks_gets_the_newest_run_that_can_be_asked(two_runs):
    assert find_wanted_run(skips_unopened=True).directory == two_runs[0]
    assert find_wanted_run(name="night", skips_unopened=True).directory == two_runs[0]
    with pytest.raises(PortNotOpenError):
        find_wanted_run(name="day", skips_unopened=True)
    with pytest.raises(PortNotOpenError):
        find_wanted_run(run_dir=str(two_runs[1].path), skips_unopened=True)
    two_runs[1].write_port(1234)
    assert find_wanted_run(skips_unopened=True).port == 1234


def test_an_older_run_that_has_ended_is_no_way_out(two_runs):
    two_runs[0].close()
    with pytest.raises(PortNotOpenError):
        find_wanted_run(skips_unopened=True)


def test_a_run_without_a_port_is_another_thing_than_no_run(place):
    with pytest.raises(NoLiveRunError):
        find_wanted_run(skips_unopened=True)
    assert not issubclass(PortNotOpenError, NoLiveRunError)
    assert issubclass(PortNotOpenError, FlodlError)


def test_the_join_token_is_kept_wherever_it_came_from(place, monkeypatch):
    assert find_wanted_run("10.0.0.1:1337").join_token is None
    monkeypatch.setenv("FLODL_TOKEN", TOKEN)
    assert find_wanted_run("10.0.0.1:1337").join_token == TOKEN
    (place / "elsewhere").write_text(f"{'ff' * 16}\n")
    assert find_wanted_run("10.0.0.1:1337", token_file="elsewhere").join_token == "ff" * 16
    with run_directory(place / "runs", 4321, token="ee" * 16):
        assert find_wanted_run().join_token == "ee" * 16
    assert RUN_ID not in repr(find_wanted_run("10.0.0.1:1337"))


def test_a_token_is_handed_on_with_the_fingerprint_that_makes_tls_a_must(place, monkeypatch):
    monkeypatch.setenv("FLODL_TOKEN", f"{TOKEN}.{FINGERPRINT}")
    found = find_wanted_run("10.0.0.1:1337")
    assert found.join_token == f"{TOKEN}.{FINGERPRINT}"
    assert found.fingerprint == bytes.fromhex(FINGERPRINT)
    assert TOKEN not in repr(found)
    monkeypatch.setenv("FLODL_TOKEN", TOKEN)
    monkeypatch.setenv("FLODL_TLS_FINGERPRINT", FINGERPRINT)
    found = find_wanted_run("10.0.0.1:1337")
    assert (found.fingerprint, found.join_token) == (
        bytes.fromhex(FINGERPRINT),
        f"{TOKEN}.{FINGERPRINT}",
    )
