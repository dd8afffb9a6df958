"""One example of every message class; the golden vectors are made of these."""

from flodl_core.ids import (
    Mode,
    OuterKind,
    RankPhase,
    Round,
    RoundOutcome,
    SaveReason,
    SyncOutcome,
)
from flodl_core.messages import control, data, join, metrics, mux, rendezvous, timing
from flodl_core.messages.job import (
    Envelope,
    Geometry,
    HostRanks,
    JobRef,
    LocalBuffer,
    OuterSpec,
    RankFileRef,
    ResumeSpec,
    RunSpec,
    Segment,
    View,
)

JOB = JobRef(
    kind="recipe",
    name="synthetic",
    args={"step_ms": (1.5, 2.5), "samples": 4096, "quiet": True, "label": "a"},
)

RANK_FILE = RankFileRef(
    rank=2,
    host="βeta",
    device="cuda:0",
    suffix=".rank2.pt",
    sha256="dd" * 32,
    nbytes=2**33,
)

SPEC = RunSpec(
    run_id="0123456789abcdef",
    mode=Mode.CPU_SYNC,
    job=JOB,
    n_samples=4096,
    batch_size=32,
    epochs=3,
    epoch_splits=1,
    seed=2**63 - 1,
    gamma=1.0,
    wire_dtype="f32",
    heartbeat_interval_s=1.0,
    heartbeat_timeout_s=30.0,
    progress_timeout_s=300.0,
    stall_timeout_s=300.0,
    rendezvous_timeout_s=120.0,
    save_path="/tmp/run/consensus",
    micro_batch=8,
    keep_checkpoints=3,
    resume=ResumeSpec(
        stem="/tmp/before/consensus.prev",
        bundle_id="fedcba9876543210-17",
        sync_round=17,
        global_step=51,
        rank_files=(RANK_FILE,),
    ),
    outer=OuterSpec(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9),
    easgd_alpha=0.5,
)

WEIGHT_VIEW = View(name="head.weight", shape=(3, 2), strides=(2, 1), storage_offset=0)

GEOMETRY = Geometry(
    params=(
        Segment(
            name="head.weight",
            dtype="float32",
            shape=(3, 2),
            offset=0,
            numel=6,
            trainable=True,
            views=(WEIGHT_VIEW,),
        ),
    ),
    params_numel=16,
    buffers=(),
    buffers_numel=0,
    locals=(LocalBuffer(name="norm.num_batches_tracked", dtype="int64", shape=()),),
)

ENVELOPE = Envelope(
    spec=SPEC,
    world_size=3,
    hosts=(
        HostRanks(host="alpha", ranks=(0, 1), devices=("cpu:0", "cpu:0")),
        HostRanks(host="βeta", ranks=(2,), devices=("cuda:0",)),
    ),
    geometry=GEOMETRY,
    model_sig="aa" * 32,
    layout_sig="bb" * 32,
    dataset_sig="cc" * 32,
    same_layout=True,
    controller="[::1]:1337",
)

PLAN = control.EpochPlan(epoch=1, offset=64, size=1024, window_batches=1)

BATCH = timing.Batch(
    batch_ms=12.5,
    data_ms=0.25,
    since_previous_ms=13.0,
    step_count=300,
    samples=32,
    loss=float("inf"),
    param_norm=None,
    sync_divergence=1e-300,
)

EXAMPLES: tuple[object, ...] = (
    join.Knock(version="0.1.0"),
    join.Offer(
        run_id="0123456789abcdef",
        mode=Mode.CPU_SYNC,
        job=JOB,
        batch_size=32,
        seed=7,
        wire_dtype="f32",
        schema=1,
    ),
    join.JoinHello(
        host="alpha",
        local_devices=("cpu:0", "cpu:1"),
        gpus=(),
        torch_variant="2.13.0+cpu",
        n_samples=4096,
        dataset_sig="cc" * 32,
        model_sig="aa" * 32,
        layout_sig=None,
        model_entries=("param|head.weight|float32|(3, 2)",),
        run_id=None,
        nccl_version=None,
    ),
    join.Accept(ranks=(1, 2), salt=bytes(range(32)), formation_wait_s=300.0),
    join.Reject(reason="no devices", fix="pass --ranks", transient=False),
    join.WorldFormed(envelope=ENVELOPE, ranks=(2,)),
    join.RankExited(rank=2, code=-9, signal="SIGKILL", cause="out of memory"),
    join.HostStats(rank=2, cpu_s=1.5, state="R", rss=2**31),
    join.DumpStack(rank=2),
    join.RankStack(rank=2, text='File "job.py", line 3\n'),
    join.Evict(rank=2, reason="no batch for 300 s"),
    join.Abort(reason="operator"),
    join.RunEnded(code=0, summary="3 epochs"),
    rendezvous.RendezvousHello(
        dataset_sig="cc" * 32,
        global_rank=0,
        host_name="alpha",
        resume_note="consensus.rank0.pt is not there",
    ),
    rendezvous.Role(role=rendezvous.RoleKind.GENERATE),
    rendezvous.Uid(uid=bytes(range(128))),
    control.RequestParams(cycle=17),
    control.Update(version=17, cycle=17, next_plan=PLAN),
    control.SyncNow(cycle=17, session=1),
    control.StartEpoch(plan=PLAN),
    control.ExtendPartition(epoch=1, offset=2048, size=96),
    control.Cut(cycle=18),
    control.DeclareDead(rank=1),
    control.RequestNewNcclId(session=2, makes_uid=False),
    control.NewNcclSession(
        session=2, uid=bytes(128), new_rank=0, new_world_size=2, consensus_from=None
    ),
    control.Throttle(),
    control.SetGlobalStep(n=70000, own_batches=12, cohort_batches=144),
    control.Checkpoint(version=17, target_rank=0, with_rank_files=True, saved_version=12),
    control.ExecuteEval(schedule_id=1, epoch=1, target_rank=0),
    control.SetCallbackRole(rank=0),
    control.EpochAggregated(epoch=1, loss=1.75, samples=4096),
    control.CoordHeartbeat(),
    control.Shutdown(),
    control.ShutdownWithSave(reason=SaveReason.REDUCE_STALL),
    control.RestoreLocals(
        local_buffers={
            "norm.num_batches_tracked": timing.TensorBlob(
                dtype="int64", shape=(), data=(2**53 + 1).to_bytes(8, "little")
            )
        },
    ),
    timing.Batches(rank=1, rows=(BATCH,)),
    timing.SnapshotReady(rank=1, cycle=17, n=1, samples=32, declared=True),
    timing.SyncAck(
        rank=1,
        cycle=17,
        outcome=SyncOutcome.COMMITTED,
        step_count=300,
        divergence=0.5,
        pre_norm=2.0,
        post_norm=2.25,
        samples=32,
    ),
    timing.Heartbeat(
        rank=1, step_count=300, phase=RankPhase.HELD, phase_s=2.5, activity="PARAM #3"
    ),
    timing.LrUpdate(rank=1, lr=0.1),
    timing.EvalResult(
        rank=0,
        schedule_id=1,
        epoch=1,
        metric=1.5,
        metric_name="nats/char",
        elapsed_ms=250.0,
        error=None,
        report="The import statement",
    ),
    timing.CheckpointResult(
        rank=0,
        version=17,
        elapsed_ms=1.5,
        error=None,
        local_buffers={
            "norm.num_batches_tracked": timing.TensorBlob(
                dtype="int64", shape=(), data=(2**53 + 1).to_bytes(8, "little")
            )
        },
        rank_file=RANK_FILE,
        rank_file_error=None,
    ),
    timing.NewNcclIdGenerated(
        rank=0, session=2, uid=bytes(128), completed_cycle=17, is_damaged=True
    ),
    timing.NcclSessionFormed(rank=0, session=2),
    timing.ResourceSample(rank=1, cpu_percent=99.5, ram_used_bytes=2**40),
    timing.Exiting(rank=1, error="ValueError: no"),
    metrics.MetricsMsg(
        rank=1,
        epoch=1,
        avg_loss=None,
        batches_processed=32,
        samples_processed=1024,
        loss_samples=992,
        epoch_ms=1000.0,
        share_complete_ms=900.0,
        compute_only_ms=800.0,
        data_starve_ms=0.0,
        scalars={"accuracy": (12.0, 32.0)},
    ),
    mux.Data(rank=1, kind=83, payload=b"\x93\x01\xcd\x01,\xa4held"),
    mux.RelayHello(host="βeta", ranks=(2,), sigs=("aa" * 32,)),
    mux.RelayHelloAck(),
    mux.RankExit(rank=2),
    mux.RelayDeclareDead(rank=2),
    data.BucketFrame(
        cycle=17,
        round=Round.PARAMS,
        index=0,
        count=2,
        mass=3.0,
        ranks=(0, 1),
        nbytes=64,
        dtype="f32",
    ),
    data.RoundEnd(
        cycle=17,
        round=Round.BUFFERS,
        outcome=RoundOutcome.COMMITTED,
        ranks_accepted=(0, 1, 2),
        mass=3.0,
    ),
    data.PlaneHello(rank=1, slot_bytes=8192),
    data.StagingOffer(nbytes=4096),
    data.Ready(rank=1, cycle=17),
)
