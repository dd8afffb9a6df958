"""What depends on capacity and devices: window defaults, solo, mode, placement, addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.config.addresses import is_loopback_address, is_private_or_local, parse_bind
from flodl_core.config.agent_schema import AgentConfig
from flodl_core.config.mode import resolve_mode
from flodl_core.config.placement import host_labels, place_agent, place_ranks
from flodl_core.config.schema import JoinConfig, RunConfig
from flodl_core.config.window import join_warnings, resolve_join, trains_solo
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode, StartMode


@pytest.mark.parametrize(
    ("start_mode", "capacity", "quorum", "target"),
    [
        ("auto", 4, 4, 4),
        ("auto", 2, 2, 2),
        ("auto", 1, 2, None),
        ("auto", 0, 2, None),
        ("auto", None, 2, None),
        ("manual", 4, 2, None),
        ("manual", None, 2, None),
        ("hybrid", 4, 2, 4),
        ("hybrid", 1, 2, None),
        ("hybrid", None, 2, None),
    ],
)
def test_quorum_and_target_follow_from_the_configured_capacity(
    start_mode, capacity, quorum, target
):
    window = resolve_join(JoinConfig(start_mode=start_mode), capacity)
    assert (window.min_rank_start, window.target_ranks) == (quorum, target)


def test_an_explicit_quorum_above_the_capacity_waits_for_others_to_dial_in():
    window = resolve_join(JoinConfig(min_rank_start=6), 2)
    assert (window.min_rank_start, window.target_ranks) == (6, None)


def test_an_explicit_quorum_below_the_capacity_keeps_the_capacity_as_target():
    window = resolve_join(JoinConfig(min_rank_start=2), 4)
    assert (window.min_rank_start, window.target_ranks) == (2, 4)


def test_an_explicit_target_below_the_capacity_s_quorum_is_refused():
    with pytest.raises(ConfigError, match="target is below the quorum of 4") as caught:
        resolve_join(JoinConfig(target_ranks=3), 4)
    assert "min_rank_start" in caught.value.fix


CONFIGS = st.builds(
    JoinConfig,
    min_rank_start=st.none() | st.integers(2, 9),
    join_timeout_s=st.floats(0.1, 1e5),
    start_mode=st.sampled_from(list(StartMode)),
)


@given(config=CONFIGS, capacity=st.none() | st.integers(0, 12))
def test_a_resolved_window_can_always_close_and_never_contradicts_itself(config, capacity):
    window = resolve_join(config, capacity)
    assert window.min_rank_start >= 2
    assert window.max_join_timeout_s >= window.join_timeout_s
    if window.target_ranks is not None:
        assert window.target_ranks >= window.min_rank_start
        assert window.start_mode is not StartMode.MANUAL


@pytest.mark.parametrize(
    ("values", "local_ranks", "hosts", "solo"),
    [
        ({}, 1, 1, True),
        ({"bind": "::1"}, 1, 1, True),
        ({}, 2, 1, False),
        ({}, 1, 2, False),
        ({"start_mode": "manual"}, 1, 1, False),
        ({"start_mode": "hybrid"}, 1, 1, False),
        ({"bind": "0.0.0.0"}, 1, 1, False),
        ({"min_rank_start": 2}, 1, 1, False),
        ({"target_ranks": 2}, 1, 1, False),
    ],
)
def test_one_local_rank_trains_solo_only_where_nobody_else_can_be_meant(
    values, local_ranks, hosts, solo
):
    assert trains_solo(JoinConfig(**values), local_ranks=local_ranks, hosts=hosts) is solo


def test_open_admission_beyond_loopback_is_warned_of():
    assert join_warnings(JoinConfig(open_admission=True)) == ()
    assert join_warnings(JoinConfig(bind="0.0.0.0")) == ()
    (warning,) = join_warnings(JoinConfig(bind="0.0.0.0", open_admission=True))
    assert "man in the middle" in warning


def test_auto_is_cadence_for_ranks_that_may_differ_and_sync_for_one_alone():
    together = resolve_mode(" AUTO ")
    assert together.mode is Mode.CPU_CADENCE
    assert "differ in speed" in together.reason
    alone = resolve_mode("auto", is_alone=True)
    assert alone.mode is Mode.CPU_SYNC
    assert "one rank" in alone.reason


@pytest.mark.parametrize("mode", list(Mode))
def test_a_mode_that_is_named_is_taken_whoever_joins(mode):
    for is_alone in (False, True):
        resolved = resolve_mode(mode.value, is_alone=is_alone)
        assert (resolved.mode, resolved.reason) == (mode, f"{mode.value}: as configured")


def test_async_with_nccl_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match="must enter it at the same point") as caught:
        resolve_mode("nccl_async")
    assert "cpu_async" in caught.value.fix


TWO_GPUS = ("cuda:0", "cuda:1")


@pytest.mark.parametrize(
    ("values", "available", "expected"),
    [
        ({}, ("cpu:0",), (("cpu:0",),)),
        ({}, TWO_GPUS, (("cuda:0", "cuda:1"),)),
        ({}, ("mps",), (("mps",),)),
        ({"ranks": 3}, ("cpu:0",), (("cpu:0", "cpu:1", "cpu:2"),)),
        ({"ranks": 1}, TWO_GPUS, (("cuda:0",),)),
        ({"ranks_per_host": 2}, (), (("cpu:0", "cpu:1"),)),
        ({"ranks": 2, "devices": "cpu"}, TWO_GPUS, (("cpu:0", "cpu:1"),)),
        ({"devices": "cuda:1,cpu:0"}, TWO_GPUS, (("cuda:1", "cpu:0"),)),
        ({"devices": "cuda"}, ("cuda:0", "mps"), (("cuda:0",),)),
        ({"hosts": 2}, ("cpu:0",), (("cpu:0",), ("cpu:0",))),
        ({"hosts": 2, "ranks_per_host": 2}, ("cpu:0",), (("cpu:0", "cpu:1"),) * 2),
        ({"hosts": 2}, TWO_GPUS, (("cuda:0",), ("cuda:1",))),
        ({"hosts": 2, "devices": "cuda:1,cuda:0"}, TWO_GPUS, (("cuda:1",), ("cuda:0",))),
    ],
)
def test_each_rank_gets_a_device_of_its_own(values, available, expected):
    plan = place_ranks(RunConfig(**values), available)
    assert plan.devices == expected
    assert plan.capacity_ranks == sum(map(len, expected))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ranks": 3}, "3 ranks were asked for"),
        ({"hosts": 3}, "3 ranks were asked for"),
        ({"devices": "cuda:2"}, "this machine has cuda:0, cuda:1"),
        ({"devices": "cuda:0,cuda:1", "ranks": 1}, "1 ranks were asked for"),
        ({"devices": "mps"}, "this machine has cuda:0, cuda:1"),
    ],
)
def test_a_count_that_the_devices_do_not_fit_is_refused(values, words):
    with pytest.raises(ConfigError, match=words) as caught:
        place_ranks(RunConfig(**values), TWO_GPUS, source="flag --devices")
    assert "flag --devices" in str(caught.value)
    assert "cpu" in caught.value.fix


def test_cuda_on_a_machine_without_a_gpu_is_refused():
    with pytest.raises(ConfigError, match="no GPU"):
        place_ranks(RunConfig(devices="cuda"), ("cpu:0",))


@given(
    hosts=st.integers(1, 4),
    each=st.none() | st.integers(1, 5),
    gpus=st.integers(0, 8),
)
def test_no_gpu_is_ever_given_twice_and_devices_differ_within_a_host(hosts, each, gpus):
    available = tuple(f"cuda:{i}" for i in range(gpus)) or ("cpu:0",)
    try:
        plan = place_ranks(RunConfig(hosts=hosts, ranks_per_host=each), available)
    except ConfigError:
        assert gpus
        assert (each or 1) * hosts > gpus
        return
    assert len(plan.devices) == hosts
    assert all(len(host) == len(set(host)) >= 1 for host in plan.devices)
    dealt = [device for host in plan.devices for device in host if device.startswith("cuda")]
    assert len(dealt) == len(set(dealt))
    if each is not None:
        assert plan.capacity_ranks == hosts * each


def test_an_agent_places_its_own_ranks():
    assert place_agent(AgentConfig(ranks=2), ("cpu:0",)) == ("cpu:0", "cpu:1")
    assert place_agent(AgentConfig(), TWO_GPUS) == TWO_GPUS


def test_hosts_of_one_machine_are_labelled_by_its_name():
    assert host_labels("box", 1) == ("box",)
    assert host_labels("box", 3) == ("box", "box-1", "box-2")


@pytest.mark.parametrize(
    ("text", "loopback", "local"),
    [
        ("127.0.0.1", True, True),
        ("127.8.9.1", True, True),
        ("localhost", True, True),
        ("::1", True, True),
        ("[::1]", True, True),
        ("::ffff:127.0.0.1", True, True),
        ("::ffff:8.8.8.8", False, False),
        ("::ffff:192.168.1.1", False, True),
        ("10.1.2.3", False, True),
        ("172.31.0.1", False, True),
        ("172.32.0.1", False, False),
        ("192.168.0.1", False, True),
        ("169.254.1.1", False, True),
        ("100.64.0.1", False, True),
        ("100.128.0.1", False, False),
        ("fe80::1", False, True),
        ("fe80::1%eth0", False, True),
        ("fd00::1", False, True),
        ("8.8.8.8", False, False),
        ("2001:db8::1", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("example.org", False, False),
        ("", False, False),
    ],
)
def test_addresses_are_judged_by_the_inner_address(text, loopback, local):
    assert is_loopback_address(text) is loopback
    assert is_private_or_local(text) is local


def test_a_bind_that_is_a_name_is_refused():
    with pytest.raises(ConfigError, match="not an address literal"):
        parse_bind("box.local", source="flag --bind")
