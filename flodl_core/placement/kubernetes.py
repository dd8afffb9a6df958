"""A run as manifests of Kubernetes: its secrets, a service, the launcher's Job and its hosts' Job.

    Secret   the join token, which no command line holds
    Secret   with tls: the certificate and its key, for the launcher's pod alone
    Service  headless; the launcher's name inside the cluster, ready or not; none where
             the launcher's pod trains alone
    Job      the launcher with its own ranks; one pod, never started anew by itself
    Job      the further hosts, one index each; a pod that cannot reach the launcher yet is
             tried again, one that was refused or lost its run ends its own index and no other

What it is: documents made from settings; nothing is sent anywhere.
What it is not: a client of a cluster; `kubectl apply -f -` is one.
Who drives it: `flodl manifests`.
"""

from dataclasses import dataclass, field
from typing import Final

from flodl_core.ids import ExitCode
from flodl_core.placement.yaml_text import Tree

PORT_NAME: Final = "flodl"
RUNS: Final = "/flodl"
IDENTITY_DIRECTORY: Final = "/flodl-identity"
IDENTITY_NAME: Final = "identity.pem"
TRIES: Final = 30
"""Pods of one host that may fail before that host is given up: a launcher's image is pulled
for minutes, and each tries for half a minute to three. One that comes while no window is open
is told so at once, and the cluster waits ever longer before the next."""
FINAL_CODES: Final = (ExitCode.USAGE, ExitCode.WINDOW_FAILED, ExitCode.JOIN_RUN_LOST)
"""What another pod of the same host would end with too."""
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
    token: str = field(repr=False)
    """The join token's text; with tls it names the certificate."""
    identity: str | None = field(default=None, repr=False)
    """The certificate and its key as PEM; None where the run speaks no TLS."""
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
    is_alone: bool = False
    """Whether one rank trains in the launcher's pod, which then listens to nobody outside."""


def manifests(run: ClusterRun) -> list[Tree]:
    """Return the documents, in the order in which they are to be applied."""
    found: list[Tree] = [_secret(run, run.name, {"token": run.token})]
    if run.identity is not None:
        found.append(_secret(run, _identity_of(run), {IDENTITY_NAME: run.identity}))
    if not run.is_alone:
        found.append(_service(run))
    found.append(_launcher(run))
    return [*found, _hosts(run)] if run.hosts > 1 else found


def _secret(run: ClusterRun, name: str, content: dict[str, Tree]) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(run, name),
        "type": "Opaque",
        "stringData": content,
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
    command = ["flodl", "headless", *map(_plain, run.launcher_words)]
    port = ["--port", str(run.port)]
    if not run.is_alone:
        port = ["--bind", "0.0.0.0", *port, "--advertise", run.name]  # noqa: S104 - a pod's own
    command += [*port, "--run-dir", RUNS]
    if run.identity is not None:
        command += ["--tls", "--tls-identity", f"{IDENTITY_DIRECTORY}/{IDENTITY_NAME}"]
    spec: dict[str, Tree] = {"backoffLimit": 0, "ttlSecondsAfterFinished": KEEP_S}
    return _job(run, "launcher", command=command, spec=spec)


def _hosts(run: ClusterRun) -> Tree:
    command = ["flodl", "join", f"{run.name}:{run.port}", "--host", "$(POD_NAME)"]
    command += [*map(_plain, run.host_words), "--run-dir", RUNS]
    spec: dict[str, Tree] = {
        "completionMode": "Indexed",
        "completions": run.hosts - 1,
        "parallelism": run.hosts - 1,
        "backoffLimitPerIndex": TRIES,
        "maxFailedIndexes": run.hosts - 1,
        "ttlSecondsAfterFinished": KEEP_S,
        "podFailurePolicy": {"rules": _failure_rules()},
    }
    return _job(run, "host", command=command, spec=spec)


def _failure_rules() -> list[Tree]:
    """Return what the end of a pod means for its host; the first rule that fits decides.

    A pod that the cluster itself takes away ends with the code of a lost run, and is replaced
    without being counted: its replacement takes part in the next window, if one opens.
    """
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {
            "action": "FailIndex",
            "onExitCodes": {"operator": "In", "values": sorted(map(int, FINAL_CODES))},
        },
    ]


def _job(run: ClusterRun, part: str, *, command: list[str], spec: dict[str, Tree]) -> Tree:
    """Return a Job; its pods see no variables of other services, and no token of the cluster."""
    is_launcher = part == "launcher"
    mounts: list[Tree] = [
        {"name": "runs", "mountPath": RUNS},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - where loaders share memory
    ]
    volumes: list[Tree] = [
        _runs_volume(run) if is_launcher else {"name": "runs", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    if is_launcher and run.identity is not None:
        mounts.append({"name": "identity", "mountPath": IDENTITY_DIRECTORY, "readOnly": True})
        volumes.append({"name": "identity", "secret": {"secretName": _identity_of(run)}})
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
        "volumeMounts": mounts,
    }
    if is_launcher:
        container["ports"] = [{"name": PORT_NAME, "containerPort": run.port}]
    if run.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": run.gpus}}
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
                    "enableServiceLinks": False,
                    "automountServiceAccountToken": False,
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    }


def _runs_volume(run: ClusterRun) -> Tree:
    if run.claim is None:
        return {"name": "runs", "emptyDir": {}}
    return {"name": "runs", "persistentVolumeClaim": {"claimName": run.claim}}


def _identity_of(run: ClusterRun) -> str:
    return f"{run.name}-identity"


def _plain(word: str) -> str:
    """Return a word as it must be written where Kubernetes replaces `$(NAME)` and `$$`."""
    return word.replace("$", "$$")


def _metadata(run: ClusterRun, name: str) -> Tree:
    place = {} if run.namespace is None else {"namespace": run.namespace}
    return {"name": name, **place, "labels": {"app.kubernetes.io/name": "flodl", "flodl": run.name}}


def _labels(run: ClusterRun, part: str) -> dict[str, Tree]:
    return {"flodl": run.name, "flodl-part": part}
