"""The schema: ranges, rules between settings, and the frozen set of keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flodl_core.config.agent_schema import AgentConfig
from flodl_core.config.keys import KEYS, SCALED, SECRET, TABLES
from flodl_core.config.rules import losses_allowed
from flodl_core.config.schema import JoinConfig, NetConfig, RunConfig, derived_ceiling_s
from flodl_core.errors import ConfigError
from flodl_core.ids import ExitCode, StartMode, WireDtype

EXPECTED_KEYS = """
run: job job_args name hosts ranks_per_host ranks devices placement place_timeout_s data
run: mode overhead_target anchor min_anchor
run: max_anchor pin_counts max_batch_diff late_factor overshoot easgd_alpha guard
run: guard_timeout_s meta relax_up
run: speed_ratio partition_ratios callback_rank eval_every epochs epoch_splits batch_size
run: micro_batch loader_workers seed gamma outer outer_lr outer_momentum inner_state
run: wire_dtype nccl_scratch nccl_interface
run: sample_log save_path checkpoint_every_s checkpoint_every_epochs keep_checkpoints resume
run: max_failure
run: stop_grace_s heartbeat_interval_s heartbeat_timeout_s progress_timeout_s first_batch_timeout_s
run: stall_timeout_s rendezvous_timeout_s formation_timeout_s inspect_timeout_s run_dir
run: on_event on_event_classes
join: min_rank_start join_timeout_s target_ranks max_join_timeout_s start_mode bind port
join: advertise open_admission require_token token tls tls_identity insecure_nccl
join: handshake_timeout_s
agent: controller job host ranks devices micro_batch loader_workers nccl_interface
agent: token token_file tls_fingerprint data persist ssh run_dir inspect_timeout_s
net: timeout_scale
"""


def test_the_set_of_keys_is_frozen():
    expected = [
        f"{line.split(':')[0]}.{name}"
        for line in EXPECTED_KEYS.split("\n")
        if line
        for name in line.split(":")[1].split()
    ]
    assert list(KEYS) == expected


def test_the_documented_defaults_stand():
    run, join = RunConfig(), JoinConfig()
    assert (join.join_timeout_s, join.cap_s, join.port) == (300.0, 600.0, 1337)
    assert (join.bind, join.start_mode, join.open_admission) == ("127.0.0.1", "auto", False)
    assert JoinConfig(start_mode=StartMode.MANUAL).cap_s == 86_400.0
    assert (run.mode, run.gamma, run.stop_grace_s) == ("auto", 1.0, 25.0)
    assert (run.heartbeat_interval_s, run.heartbeat_timeout_s) == (1.0, 30.0)
    assert (run.checkpoint_every_s, run.rendezvous_timeout_s) == (1800.0, 120.0)
    assert (run.progress_ceiling_s, run.stall_ceiling_s) == (300.0, 300.0)
    assert (join.handshake_timeout_s, run.inspect_timeout_s) == (10.0, 120.0)


def test_every_setting_is_documented_and_has_an_example():
    for key in KEYS.values():
        assert len(key.doc) > 15, key.dotted
        assert key.doc.endswith("."), key.dotted
        assert key.example, key.dotted


def test_every_example_is_a_legal_value():
    needs = {
        "on_event_classes": {"on_event": "true"},
        "target_ranks": {},
        "insecure_nccl": {"tls": True},
        "tls_identity": {"tls": True},
        "outer_lr": {"outer": "slowmo"},
        "outer_momentum": {"outer": "slowmo"},
        "inner_state": {"outer": "nesterov"},
    }
    for key in KEYS.values():
        if key.name == "job_args":
            continue
        TABLES[key.table].model_validate({key.name: key.example, **needs.get(key.name, {})})


def test_variables_and_options_do_not_collide_within_a_command():
    for tables in (("run", "join", "net"), ("agent", "net")):
        keys = [key for key in KEYS.values() if key.table in tables]
        assert len({key.flag for key in keys}) == len(keys)
        variables = [key.env for key in keys if key.env is not None]
        assert len(set(variables)) == len(variables)


def test_only_ceilings_are_scaled_and_the_beacon_is_not():
    assert all(name.endswith("_timeout_s") for name in SCALED)
    assert "run.heartbeat_interval_s" not in SCALED
    assert set(KEYS) >= SCALED | SECRET


def test_a_narrow_wire_is_for_the_cpu_modes():
    assert RunConfig().wire_dtype is WireDtype.F32
    assert RunConfig(wire_dtype=" BF16 ", mode="cpu_sync").wire_dtype is WireDtype.BF16
    with pytest.raises(ConfigError, match="NCCL moves every tensor in its own type"):
        RunConfig(wire_dtype="bf16", mode="nccl_cadence")
    with pytest.raises(ValidationError, match="wire_dtype"):
        RunConfig(wire_dtype="f16")


def test_models_are_frozen_and_closed():
    with pytest.raises(ValidationError):
        RunConfig().epochs = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="epoch"):
        RunConfig(epoch=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (RunConfig, {"ranks": 0}),
        (RunConfig, {"ranks": 257}),
        (RunConfig, {"epochs": -1}),
        (RunConfig, {"epochs": 0}),
        (RunConfig, {"hosts": 0}),
        (RunConfig, {"gamma": 8.5}),
        (RunConfig, {"gamma": float("nan")}),
        (RunConfig, {"seed": -1}),
        (RunConfig, {"heartbeat_timeout_s": 0}),
        (RunConfig, {"checkpoint_every_s": -1}),
        (RunConfig, {"overhead_target": 0}),
        (RunConfig, {"overhead_target": 1}),
        (RunConfig, {"anchor": 0}),
        (RunConfig, {"max_anchor": 0}),
        (RunConfig, {"pin_counts": "10,0"}),
        (RunConfig, {"pin_counts": "10,x"}),
        (RunConfig, {"max_batch_diff": -1}),
        (RunConfig, {"late_factor": 1}),
        (RunConfig, {"overshoot": -1}),
        (RunConfig, {"easgd_alpha": 0}),
        (RunConfig, {"easgd_alpha": 1.5}),
        (RunConfig, {"partition_ratios": "1,0"}),
        (RunConfig, {"partition_ratios": "1,nan"}),
        (RunConfig, {"eval_every": -1}),
        (RunConfig, {"outer": "diloco"}),
        (RunConfig, {"outer": "slowmo", "outer_lr": 0}),
        (RunConfig, {"outer": "slowmo", "outer_lr": 11}),
        (RunConfig, {"outer": "slowmo", "outer_momentum": 1}),
        (RunConfig, {"outer": "slowmo", "outer_momentum": -0.1}),
        (JoinConfig, {"port": 70_000}),
        (JoinConfig, {"port": -1}),
        (JoinConfig, {"join_timeout_s": float("inf")}),
        (JoinConfig, {"start_mode": "later"}),
        (NetConfig, {"timeout_scale": 0.09}),
        (NetConfig, {"timeout_scale": 1e4}),
    ],
)
def test_values_out_of_range_are_refused(model, values):
    with pytest.raises(ValidationError):
        model(**values)


@pytest.mark.parametrize(
    ("values", "field", "reason", "fix"),
    [
        ({"min_rank_start": 1}, "min_rank_start", "at least 2", "unset"),
        ({"min_rank_start": 0}, "min_rank_start", "at least 2", "unset"),
        ({"min_rank_start": 4, "target_ranks": 3}, "target_ranks", "below the quorum", "least 4"),
        (
            {"join_timeout_s": 10, "max_join_timeout_s": 9},
            "max_join_timeout_s",
            "below the window",
            "at least 10",
        ),
        ({"start_mode": "manual", "target_ranks": 4}, "target_ranks", "operator", "hybrid"),
        ({"open_admission": True, "require_token": True}, "open_admission", "contradicts", "one"),
        ({"bind": "example"}, "bind", "not an address", "127.0.0.1"),
        ({"token": "xyz"}, "token", "32 hex characters", "token file"),
    ],
)
def test_every_refusal_of_the_window_says_why_and_what_to_do(values, field, reason, fix):
    with pytest.raises(ConfigError) as caught:
        JoinConfig(**values)
    assert caught.value.field == field
    assert reason in caught.value.reason
    assert fix in caught.value.fix
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("values", "field", "fix"),
    [
        ({"ranks": 4, "hosts": 2}, "ranks", "ranks_per_host"),
        ({"ranks": 4, "ranks_per_host": 2}, "ranks", "one of the two"),
        ({"min_anchor": 11, "max_anchor": 10}, "min_anchor", "at most 10"),
        ({"heartbeat_timeout_s": 1.5}, "heartbeat_timeout_s", "at least 2"),
        ({"on_event_classes": ("rank_lost",)}, "on_event_classes", "on_event"),
        ({"outer_lr": 0.5}, "outer_lr", "slowmo or nesterov"),
        ({"nccl_interface": "eth 0"}, "nccl_interface", "ip link"),
        ({"outer": "avg", "outer_momentum": 0.5}, "outer_momentum", "slowmo or nesterov"),
        ({"inner_state": "fresh"}, "inner_state", "slowmo or nesterov"),
        ({"devices": ("tpu:0",)}, "devices", "cuda:N"),
        ({"devices": ()}, "devices", "cuda:N"),
        ({"devices": ("cuda:0", "cuda:0")}, "devices", "once"),
        ({"devices": ("all", "cuda:0")}, "devices", "single devices"),
    ],
)
def test_contradicting_settings_of_a_run_are_refused(values, field, fix):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**values)
    assert caught.value.field == field
    assert fix in caught.value.fix


def durations() -> list[tuple[str, str]]:
    """Every setting that is a time, by table and name: its name ends in _s."""
    return [(key.table, key.name) for key in KEYS.values() if key.name.endswith("_s")]


@pytest.mark.parametrize(("table", "name"), durations())
@pytest.mark.parametrize("value", [1e-9, 0.009, 1e10])
def test_no_time_is_so_short_that_it_floods_or_so_long_that_no_clock_holds_it(table, name, value):
    with pytest.raises((ValidationError, ConfigError)) as caught:
        TABLES[table].model_validate({name: value})
    assert name in str(caught.value)


def test_the_shortest_and_the_longest_times_are_taken():
    shortest = RunConfig(heartbeat_interval_s=0.01, heartbeat_timeout_s=0.1, stall_timeout_s=0.1)
    assert (shortest.heartbeat_interval_s, shortest.stall_ceiling_s) == (0.01, 0.1)
    assert RunConfig(checkpoint_every_s=0).checkpoint_every_s == 0
    assert RunConfig(checkpoint_every_s=0.1, heartbeat_timeout_s=1e9).progress_ceiling_s == 1e9


def test_equal_ranks_and_ranks_per_host_do_not_contradict():
    assert RunConfig(ranks=2, ranks_per_host=2).ranks == 2


def test_a_token_is_never_repeated_in_its_refusal():
    secret = "0f1e2d3c4b5a69788796a5b4c3d2e1"
    with pytest.raises(ConfigError) as caught:
        AgentConfig(token=secret)
    assert secret not in str(caught.value)


def test_words_and_tokens_ignore_case_and_spaces():
    assert JoinConfig(token="  " + "AB" * 16 + " ").token == "ab" * 16
    assert RunConfig(mode=" CPU_Sync ").mode == "cpu_sync"
    assert RunConfig(devices="cpu:0, cpu:1").devices == ("cpu:0", "cpu:1")
    assert JoinConfig(start_mode="HYBRID").start_mode is StartMode.HYBRID


@pytest.mark.parametrize(
    ("given", "counts"),
    [("10, 20", (10, 20)), ([10, 20], (10, 20)), (7, (7,)), ("", ()), ((), ())],
)
def test_pinned_counts_are_one_number_a_rank(given, counts):
    assert RunConfig(pin_counts=given).pin_counts == counts


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, "auto"), (False, None), ("true", "auto"), ("no.jsonl", "no.jsonl"), (None, None)],
)
def test_the_sample_log_is_a_switch_or_a_path(value, expected):
    assert RunConfig(sample_log=value).sample_log == expected


def test_a_longer_window_lifts_the_default_cap():
    assert JoinConfig(join_timeout_s=1000).cap_s == 1000.0
    assert JoinConfig(join_timeout_s=1000, max_join_timeout_s=1000).cap_s == 1000.0


@pytest.mark.parametrize(
    ("values", "is_open"),
    [
        ({}, True),
        ({"bind": "::1"}, True),
        ({"bind": "::ffff:127.0.0.1"}, True),
        ({"require_token": True}, False),
        ({"bind": "0.0.0.0"}, False),
        ({"bind": "::"}, False),
        ({"bind": "::ffff:10.0.0.1"}, False),
        ({"bind": "10.0.0.5", "open_admission": True}, True),
    ],
)
def test_admission_is_open_on_loopback_or_by_choice(values, is_open):
    assert JoinConfig(**values).admits_openly is is_open


@given(heartbeat_s=st.floats(0.1, 1e4), scale=st.floats(0.1, 10))
def test_derived_ceilings_are_never_below_ten_heartbeats_nor_the_floor(heartbeat_s, scale):
    ceiling_s = derived_ceiling_s(heartbeat_s, scale=scale)
    assert ceiling_s >= 10 * heartbeat_s
    assert ceiling_s >= 300 * scale
    assert ceiling_s in (10 * heartbeat_s, 300 * scale)


@pytest.mark.parametrize(
    ("text", "world_size", "allowed"),
    [
        (None, 8, None),
        ("2", 8, 2),
        (3, 8, 3),
        ("50%", 8, 4),
        ("25%", 3, 1),  # 0.75 of a rank, rounded up
        ("34%", 3, 2),  # 1.02
        ("0.1%", 8, 1),
        ("100%", 5, 5),
    ],
)
def test_losses_are_allowed_by_number_or_by_part_of_the_world(text, world_size, allowed):
    assert losses_allowed(RunConfig(max_failure=text).max_failure, world_size) == allowed


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-1", "two", "1.5", "", "50 %"])
def test_a_limit_of_losses_that_means_nothing_is_refused(text):
    with pytest.raises(ConfigError, match="no percentage up to 100%"):
        RunConfig(max_failure=text)
