"""A run as manifests of Kubernetes: a secret, a service, the launcher's Job and its hosts' Job.

    Secret   the join token, which no command line holds
    Service  headless; the launcher's name inside the cluster, ready or not
    Job      the launcher with its own ranks; one pod, never started anew by itself
    Job      the further hosts, one pod each, indexed; a pod that cannot reach the launcher
             yet is tried again, one that was refused or lost its run ends them all

What it is: documents made from settings; nothing is sent anywhere.
What it is not: a client of a cluster; `kubectl apply -f -` is one.
Who drives it: `flodl manifests`.
"""

from dataclasses import dataclass
from typing import Final

from flodl_core.ids import ExitCode
from flodl_core.placement.yaml_text import Tree

PORT_NAME: Final = "flodl"
RUNS: Final = "/flodl"
TRIES: Final = 30
"""Pods of one host that may fail before the run is given up: a launcher's image is pulled
for minutes, and each tries for half a minute."""
FINAL_CODES: Final = (ExitCode.USAGE, ExitCode.WINDOW_FAILED, ExitCode.JOIN_RUN_LOST)
KEEP_S: Final = 86_400
"""How long ended Jobs can be read before the cluster takes them away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRun:
    """What the manifests are made from."""

    name: str
    """Of every object; a name of DNS."""
    namespace: str | None
    image: str
    """With flodl and the job in it; its entry point is not used."""
    token: str
    port: int
    hosts: int
    """The launcher's own included."""
    gpus: int
    """Of each host."""
    claim: str | None
    """Volume claim for run directories and checkpoints; they end with the pod if None."""
    launcher_words: tuple[str, ...]
    """Of `flodl headless`, without what the manifests say themselves."""
    host_words: tuple[str, ...]
    """Of `flodl join`, without what the manifests say themselves."""


def manifests(run: ClusterRun) -> list[Tree]:
    """Return the documents, in the order in which they are to be applied."""
    found: list[Tree] = [_secret(run), _service(run), _launcher(run)]
    return [*found, _hosts(run)] if run.hosts > 1 else found


def _secret(run: ClusterRun) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(run, run.name),
        "type": "Opaque",
        "stringData": {"token": run.token},
    }


def _service(run: ClusterRun) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(run, run.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _labels(run, "launcher"),
            "ports": [{"name": PORT_NAME, "port": run.port}],
        },
    }


def _launcher(run: ClusterRun) -> Tree:
    command = ["flodl", "headless", *run.launcher_words]
    command += ["--bind", "0.0.0.0", "--port", str(run.port)]  # noqa: S104 - a pod's own network
    command += ["--advertise", run.name, "--run-dir", RUNS]
    spec: dict[str, Tree] = {"backoffLimit": 0, "ttlSecondsAfterFinished": KEEP_S}
    return _job(run, "launcher", command=command, spec=spec)


def _hosts(run: ClusterRun) -> Tree:
    command = ["flodl", "join", f"{run.name}:{run.port}", "--host", "$(POD_NAME)"]
    command += [*run.host_words, "--run-dir", RUNS]
    spec: dict[str, Tree] = {
        "completionMode": "Indexed",
        "completions": run.hosts - 1,
        "parallelism": run.hosts - 1,
        "backoffLimit": TRIES * (run.hosts - 1),
        "ttlSecondsAfterFinished": KEEP_S,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"operator": "In", "values": sorted(map(int, FINAL_CODES))},
                }
            ]
        },
    }
    return _job(run, "host", command=command, spec=spec)


def _job(run: ClusterRun, part: str, *, command: list[str], spec: dict[str, Tree]) -> Tree:
    container: dict[str, Tree] = {
        "name": part,
        "image": run.image,
        "command": command,
        "env": [
            {
                "name": "FLODL_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": run.name, "key": "token"}},
            },
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "volumeMounts": [
            {"name": "runs", "mountPath": RUNS},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - where loaders share memory
        ],
    }
    if part == "launcher":
        container["ports"] = [{"name": PORT_NAME, "containerPort": run.port}]
    if run.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": run.gpus}}
    volume: dict[str, Tree] = {"name": "runs", "emptyDir": {}}
    if run.claim is not None and part == "launcher":
        volume = {"name": "runs", "persistentVolumeClaim": {"claimName": run.claim}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(run, f"{run.name}-{part}"),
        "spec": {
            **spec,
            "template": {
                "metadata": {"labels": _labels(run, part)},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 60,
                    "containers": [container],
                    "volumes": [
                        volume,
                        {"name": "shm", "emptyDir": {"medium": "Memory"}},
                    ],
                },
            },
        },
    }


def _metadata(run: ClusterRun, name: str) -> Tree:
    place = {} if run.namespace is None else {"namespace": run.namespace}
    return {"name": name, **place, "labels": {"app.kubernetes.io/name": "flodl", "flodl": run.name}}


def _labels(run: ClusterRun, part: str) -> dict[str, Tree]:
    return {"flodl": run.name, "flodl-part": part}
