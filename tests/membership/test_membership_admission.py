"""Admission: every refusal with cause and fix, in the order of the design."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from membership_script import EXPECTED, hello

from flodl_core.ids import HostName, Mode, RunId
from flodl_core.membership.admission import Admitted, Refused, escaped, review_admission
from flodl_core.membership.job_facts import (
    expect_job,
    geometry_signature,
    introduce_host,
    without_entries,
)
from flodl_core.membership.roster import (
    ConnectionId,
    Expected,
    Member,
    count_ranks,
    gpu_vendor,
    host_ranks,
    seat,
    seed_expected,
    shares_layout,
)
from flodl_core.messages.job import Geometry, JobFacts, LocalBuffer, Segment, View

NCCL = replace(EXPECTED, mode=Mode.NCCL_SYNC, torch_variant="2.6.0+cu126", nccl_version="2.26.2")
NAMELESS = replace(EXPECTED, model_entries=())


def member(said, connection=0):
    return Member(
        connection=ConnectionId(connection), address="10.0.0.9:4242", hello=said, joined_at_s=1.0
    )


def refusal(said, members=(), expected=EXPECTED) -> Refused:
    verdict = review_admission(said, members, expected)
    assert isinstance(verdict, Refused)
    assert verdict.reason
    assert verdict.fix
    return verdict


def test_a_host_that_agrees_is_admitted():
    assert review_admission(hello(), (), EXPECTED) == Admitted()
    assert review_admission(hello("blue"), (member(hello("red")),), EXPECTED) == Admitted()


CASES = [
    ({"host": " \t"}, EXPECTED, "host name is blank", "--host"),
    ({"local_devices": ()}, EXPECTED, "must be non-empty", "--devices"),
    (
        {"local_devices": tuple(map(str, range(257)))},
        EXPECTED,
        "257 devices exceeds the per-worker cap of 256",
        "several agents",
    ),
    (
        {"local_devices": ("cpu:0", "cpu:1", "cpu:0")},
        EXPECTED,
        "duplicate local device 'cpu:0'",
        "once",
    ),
    ({"host": "taken"}, EXPECTED, "'taken' already joined from 10.0.0.9:4242", "--host"),
    (
        {"dataset_sig": "ee" * 32},
        EXPECTED,
        "dataset signature mismatch: the run has 'dadadada', this host 'eeeeeeee'",
        "dataset_version",
    ),
    (
        {"torch_variant": "2.6.0+rocm6.2"},
        NCCL,
        "vendor mismatch: the run averages with NCCL on NVIDIA",
        "cpu_cadence",
    ),
    (
        {"run_id": "1234567890abcdef"},
        EXPECTED,
        "run identity mismatch: this is run 'aaaabbbb', the host wants '12345678'",
        "afresh",
    ),
    ({"nccl_version": "2.25.1"}, NCCL, "NCCL version skew: the run has '2.26.2'", "pip install"),
    (
        {"model_sig": "cd" * 32},
        NAMELESS,
        "model mismatch: the run has 'abababab', this host 'cdcdcdcd'",
        "same code",
    ),
    ({"geometry_sig": "77" * 32}, EXPECTED, "layout mismatch", "tie the same"),
    ({"wire_dtype": "bf16"}, EXPECTED, "wire dtype mismatch: the run sends 'f32'", "version"),
]


@pytest.mark.parametrize(("changes", "expected", "reason", "fix"), CASES)
def test_each_test_refuses_with_cause_and_fix(changes, expected, reason, fix):
    found = refusal(hello(**changes), (member(hello("taken")),), expected)
    assert reason in found.reason
    assert fix in found.fix
    assert found.transient == ("run identity" in reason)


@given(chosen=st.sets(st.sampled_from(range(len(CASES))), min_size=1))
def test_the_first_failing_test_decides_whatever_else_is_wrong(chosen):
    order = [i for i in sorted(chosen) if i not in (0, 1, 2, 3) or i == min(chosen)]
    changes: dict[str, object] = {}
    for i in order:
        for name, value in CASES[i][0].items():
            changes.setdefault(name, value)
    found = refusal(hello(**changes), (member(hello("taken")),), replace(NCCL, model_entries=()))
    assert CASES[min(chosen)][2].split(":")[0] in found.reason


def test_a_host_without_a_gpu_for_each_rank_is_refused_where_all_need_one():
    strict = replace(NCCL, needs_gpus=True)
    found = refusal(hello(local_devices=("cuda:0", "cpu:0")), expected=strict)
    assert "a rank here would have 'cpu:0'" in found.reason
    assert "--devices cuda" in found.fix
    gpus = hello(local_devices=("cuda:0", "cuda:1"), torch_variant="2.6.0+cu126")
    assert review_admission(gpus, (), strict) == Admitted()


def test_two_hundred_and_fifty_six_devices_are_admitted():
    assert review_admission(hello(devices=256), (), EXPECTED) == Admitted()


def test_lengths_of_datasets_are_named_where_they_differ():
    found = refusal(hello(dataset_sig="ee" * 32, n_samples=90))
    assert found.reason.endswith("the run has 100 samples, this host 90")


def test_a_model_mismatch_names_the_first_parameter_that_differs_on_both_sides():
    theirs = ("param|fc.weight|float32|(20, 5)", "param|fc.bias|float32|(20,)")
    found = refusal(hello(model_sig="cd" * 32, model_entries=theirs))
    assert "the run has 'param|fc.weight|float32|(10, 5)'" in found.reason
    assert "this host 'param|fc.weight|float32|(20, 5)'" in found.reason
    assert "bias" not in found.reason


def test_a_model_mismatch_names_what_only_one_side_has():
    shorter = EXPECTED.model_entries[:1]
    found = refusal(hello(model_sig="cd" * 32, model_entries=shorter))
    assert "the run has 'param|fc.bias|float32|(10,)', this host no further tensor" in found.reason


def test_a_model_mismatch_without_a_difference_in_names_shows_the_digests():
    found = refusal(hello(model_sig="cd" * 32))
    assert found.reason.endswith("this host 'cdcdcdcd'")


def test_long_and_unprintable_names_are_cut_and_escaped():
    assert escaped("a\n\x1b[2J\u202e") == "a\\n\\x1b[2J\\u202e"
    assert escaped("x" * 500) == "x" * 200 + "…"


@pytest.mark.parametrize(
    "absent", ["model_sig", "run_id", "nccl_version", "geometry_sig", "wire_dtype", "layout_sig"]
)
def test_an_absent_optional_fact_gates_nothing_on_either_side(absent):
    assert review_admission(hello(**{absent: None}), (), NCCL) == Admitted()
    other = hello(**{absent: "other.1"})
    assert review_admission(other, (), replace(NCCL, **{absent: None})) == Admitted()


@pytest.mark.parametrize("mode", [None, Mode.CPU_SYNC, Mode.CPU_CADENCE, Mode.CPU_ASYNC])
def test_nccl_tests_refuse_nothing_in_other_modes(mode):
    said = hello(torch_variant="2.6.0+rocm6.2", nccl_version="1.0")
    assert review_admission(said, (), replace(NCCL, mode=mode)) == Admitted()


def test_nccl_patches_may_differ():
    assert review_admission(hello(nccl_version="2.26.9"), (), NCCL) == Admitted()
    refusal(hello(nccl_version="3.26.2"), (), NCCL)


def test_another_memory_layout_alone_is_no_refusal():
    assert review_admission(hello(layout_sig="00" * 32), (), EXPECTED) == Admitted()


@pytest.mark.parametrize(
    ("label", "vendor"),
    [
        ("2.6.0+cu126", "NVIDIA"),
        ("2.6.0+rocm6.2", "AMD"),
        ("2.6.0+cpu", None),
        ("2.6.0", None),
        ("precompiled/cu126", "NVIDIA"),
        ("precompiled/rocm6.2", "AMD"),
        ("precompiled/cpu", None),
        ("builds/sm_90", "NVIDIA"),
        ("builds/sm90", "NVIDIA"),
        ("builds/custom", None),
        ("builds/small", None),
        ("", None),
        (None, None),
    ],
)
def test_a_vendor_is_read_from_a_label_that_tells_one(label, vendor):
    assert gpu_vendor(label) == vendor


def test_gaps_are_filled_by_the_first_member_that_can():
    first = hello("a", torch_variant="2.6.0+cpu", model_sig=None, run_id=None)
    second = hello("b", torch_variant="2.6.0+cu126", nccl_version="2.26.2")
    third = hello("c", torch_variant="2.6.0+rocm6", nccl_version="2.0", run_id=RunId("other"))
    members = [member(said, i) for i, said in enumerate((first, second, third))]
    seeded = seed_expected(Expected(), members)
    assert seeded.dataset_sig == EXPECTED.dataset_sig
    assert (seeded.model_sig, seeded.model_entries) == (second.model_sig, second.model_entries)
    assert (seeded.torch_variant, seeded.nccl_version) == ("2.6.0+cu126", "2.26.2")
    assert seeded.run_id == EXPECTED.run_id
    assert seed_expected(EXPECTED, []) == EXPECTED


def test_ranks_are_contiguous_in_admission_order():
    members = [member(hello(name, n), i) for i, (name, n) in enumerate([("a", 2), ("b", 3)])]
    seated = seat(members)
    assert [s.ranks for s in seated] == [(0, 1), (2, 3, 4)]
    assert count_ranks(members) == 5
    hosts = host_ranks(seated)
    assert [(h.host, h.ranks) for h in hosts] == [("a", (0, 1)), ("b", (2, 3, 4))]
    assert hosts[1].devices == ("cpu:0", "cpu:1", "cpu:2")


def test_strides_stay_only_where_every_host_has_the_launcher_s_layout():
    same = seat([member(hello("a")), member(hello("b"), 1)])
    other = seat([member(hello("a")), member(hello("b", layout_sig="00"), 1)])
    absent = seat([member(hello("a", layout_sig=None))])
    assert shares_layout(same, EXPECTED.layout_sig)
    assert not shares_layout(other, EXPECTED.layout_sig)
    assert not shares_layout(absent, EXPECTED.layout_sig)
    assert not shares_layout(same, None)


@given(name=st.text(max_size=400))
def test_a_peer_s_name_is_escaped_and_bounded(name):
    shown = escaped(name)
    assert shown.isprintable()
    assert len(shown) <= 10 * 201
    refused = refusal(hello(name or "x", devices=("a", "a")))
    assert refused.reason.isprintable()


def segment(name, *, shape=(2,), views=(), trainable=True):
    shown = views or (View(name=name, shape=shape, strides=(1,), storage_offset=0),)
    return Segment(
        name=name,
        dtype="float32",
        shape=shape,
        offset=0,
        numel=2,
        trainable=trainable,
        views=shown,
    )


def geometry(*params, buffers=(), local=()):
    return Geometry(params=params, params_numel=16, buffers=buffers, buffers_numel=0, locals=local)


def test_the_geometry_signature_sees_ties_order_and_kind_and_nothing_else():
    base = geometry(segment("a"), segment("b"))
    tie = View(name="b", shape=(2,), strides=(1,), storage_offset=0)
    variants = [
        geometry(segment("b"), segment("a")),
        geometry(
            segment("a", views=(View(name="a", shape=(2,), strides=(1,), storage_offset=0), tie))
        ),
        geometry(segment("a"), buffers=(segment("b"),)),
        geometry(segment("a"), segment("b", shape=(1, 2))),
        geometry(
            segment("a"), segment("b"), local=(LocalBuffer(name="n", dtype="int64", shape=()),)
        ),
        geometry(),
    ]
    signatures = {geometry_signature(g) for g in [base, *variants]}
    assert len(signatures) == len(variants) + 1
    frozen = geometry(segment("a", trainable=False), segment("b"))
    assert geometry_signature(frozen) == geometry_signature(base)


def test_the_two_sides_of_one_job_agree():
    facts = JobFacts(
        n_samples=100,
        dataset_sig="d",
        model_sig="m",
        layout_sig="l",
        model_entries=("param|w|float32|(2,)",),
        model_bytes=8,
        geometry=geometry(segment("w")),
        devices=("cpu:0",),
        gpus=(),
        torch_variant="2.6.0+cpu",
        batch_size=4,
        epochs=1,
        has_eval=False,
    )
    run_id = RunId("0123456789abcdef")
    expected = expect_job(facts, run_id=run_id, mode=Mode.CPU_SYNC, wire_dtype="f32")
    said = introduce_host(facts, ("cpu:0",), host=HostName("red"), run_id=run_id, wire_dtype="f32")
    assert said.geometry_sig == expected.geometry_sig
    assert review_admission(said, (), expected) == Admitted()
    assert without_entries(said).model_entries == ()
    assert without_entries(said).model_sig == "m"
    other = replace(facts, geometry=geometry(segment("v")))
    refused = refusal(introduce_host(other, ("cpu:0",), host=HostName("red")), (), expected)
    assert "layout mismatch" in refused.reason
