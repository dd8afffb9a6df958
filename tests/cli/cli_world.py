"""A launcher that answers as it is told, its run directory, and documents for both."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from flodl_core.ids import ClusterPhase, RankPhase, RunId
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.state import (
    AlertState,
    CheckpointState,
    EndState,
    MemberState,
    RankState,
    ReduceState,
    RunState,
    StateDocument,
    TrainingState,
    WaitState,
)

TOKEN = "00112233445566778899aabbccddeeff"
RUN_ID = "0123456789abcdef"


def document(phase="waiting", *, at_s=1.0, **given):
    return StateDocument(
        **{
            "run": RunState(
                id=RUN_ID,
                name="night",
                mode="cpu_sync",
                mode_reason="as configured",
                started_at="2031-01-02T03:04:05Z",
                uptime_s=at_s,
                port=1337,
            ),
            "phase": ClusterPhase(phase),
            "joined_ranks": 2,
            "joined_hosts": 1,
            "min_rank_start": 2,
            "start_mode": "manual",
            "cap_remaining_s": 60.0,
            "members": (
                MemberState(
                    host="red",
                    address="127.0.0.1",
                    ranks=(0, 1),
                    local_devices=("cpu:0", "cpu:1"),
                    joined_at_s=0.1,
                ),
            ),
            **given,
        }
    )


def in_training(*, at_s=65.0, **given):
    return document(
        "training",
        at_s=at_s,
        **{
            "training": TrainingState(
                epoch=0,
                epochs=3,
                global_step=40,
                samples_done=640,
                samples_total=6000,
                loss=2.5,
                throughput=412.4,
                eta_s=80.0,
            ),
            "reduce": ReduceState(
                state="pending",
                backend="cpu",
                cycle=11,
                version=10,
                pending_s=7.0,
                stall_ceiling_s=300.0,
                last_sync_ms=4.2,
                last_outcome="committed",
                bytes=2**20,
            ),
            "ranks": (
                RankState(rank=0, host="red", device="cpu:0", state=RankPhase.TRAINING, share=0.5),
                RankState(rank=1, host="red", device="cpu:1", state=RankPhase.HELD, share=0.5),
            ),
            **given,
        },
    )


def in_trouble():
    return in_training(
        waits=(
            WaitState(rank=1, host="red", phase="reducing", age_s=7, ceiling_s=300, outcome="stop"),
        ),
        alerts=(
            AlertState(
                severity="critical",
                alert_class="rank_lost",
                path="root/red/rank1",
                detail="SIGKILL\x1b[2J",
                count=2,
                at="2031-01-02T03:05:05Z",
            ),
        ),
        refusals=2,
        last_refusal="another model",
        checkpoint=CheckpointState(
            path="out/model", version=9, saving=True, last_error="disk full"
        ),
    )


def ended(exit_code=0, reason="finished"):
    phase = "done" if exit_code == 0 else "failed"
    return in_training(at_s=99.0).model_copy(
        update={
            "phase": ClusterPhase(phase),
            "end": EndState(exit_code=exit_code, reason=reason),
        }
    )


class Answers:
    """What the launcher answers by path, and what it was asked."""

    def __init__(self):
        self.by_path = {}
        self.asked = []

    def set(self, path, body, status=200):
        if isinstance(body, StateDocument):
            body = json.loads(body.model_dump_json())
        self.by_path[path] = (status, body)


@contextmanager
def launcher_at():
    """Serve on a free port of loopback; yield the port and the answers."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            path = urlsplit(self.path).path
            answers.asked.append((self.command, self.path, self.headers.get("Authorization")))
            status, body = answers.by_path.get(path, (404, {"error": "no such endpoint"}))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer  # noqa: N815 - the names that the server calls

        def log_message(self, *_):
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1], answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def run_directory(base: Path, port: int | None, *, token=TOKEN, name="night", run_id=RUN_ID):
    """Make a live run's directory under `base`."""
    directory = RunDirectory.create(base, name, RunId(run_id))
    try:
        directory.write_token(token)
        if port is not None:
            directory.write_port(port)
        yield directory
    finally:
        directory.close()
