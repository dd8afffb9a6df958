"""`flodl manifests JOB --image IMAGE`: a run as manifests for `kubectl apply -f -`.

What it is: settings in, YAML out, with a fresh join token in its secret.
What it is not: a client of a cluster.
Who drives it: `index`.
"""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from flodl_core.cli.options import (
    RUN_TABLES,
    ConfigFile,
    Flags,
    JobName,
    StepMs,
    Verbose,
    setting_keys,
    with_settings,
    with_step_ms,
)
from flodl_core.errors import ConfigError

if TYPE_CHECKING:
    from flodl_core.config.load import LoadedRun

_SAID_HERE: Final = (
    "run.hosts",
    "run.ranks",
    "run.run_dir",
    "run.placement",
    "run.place_timeout_s",
    "run.data",
    "join.bind",
    "join.token",
    "join.advertise",
)
"""What the manifests say themselves, or what a cluster has another word for."""
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?")


@with_settings(
    tuple(
        key
        for key in setting_keys(RUN_TABLES)
        if key.dotted not in _SAID_HERE or key.dotted == "run.hosts"
    )
)
def command(
    flags: Flags,
    job: JobName = None,
    image: Annotated[
        str,
        typer.Option(
            "--image",
            metavar="IMAGE",
            help="Container image with flodl and the job in it.",
            show_default=False,
        ),
    ] = "",
    gpus: Annotated[
        int,
        typer.Option(
            "--gpus",
            metavar="N",
            min=0,
            max=256,
            help="GPUs of each host, which is one pod. [default: 0]",
            show_default=False,
        ),
    ] = 0,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            metavar="NAME",
            help="Namespace of all objects; kubectl's own if not given.",
            show_default=False,
        ),
    ] = None,
    claim: Annotated[
        str | None,
        typer.Option(
            "--claim",
            metavar="NAME",
            help="Volume claim that keeps run directories and checkpoints of the launcher.",
            show_default=False,
        ),
    ] = None,
    step_ms: StepMs = None,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Print a run of JOB as manifests: secret, service, the launcher's Job and its hosts' Job.

    --hosts counts pods, the launcher's own included. Settings given here are handed to the
    launcher; JOB must be found inside the image.
    """
    import secrets

    from flodl_core.cli.lines import write_line
    from flodl_core.config.load import load_run
    from flodl_core.placement.kubernetes import ClusterRun, manifests
    from flodl_core.placement.yaml_text import yaml_text

    given = {**with_step_ms(flags, step_ms), "job": job}
    loaded = load_run(given, config_file=config_file, needs_job=True)
    if not image:
        raise _refused("image", image, "no image was given", "give --image REGISTRY/NAME:TAG")
    if loaded.join.tls:
        reason = "the run's certificate is made when it starts, and its hosts must know it before"
        raise _refused("tls", "true", reason, "encrypt the pods' network, as by a service mesh")
    run, job_there = loaded.run, loaded.run.job or ""
    name = run.name or re.sub(r"[^a-z0-9]+", "-", job_there.lower()).strip("-")
    if not _NAME.fullmatch(name):
        raise _refused("name", name, "is no name of DNS", "give --name with a-z, 0-9 and dashes")
    ranks_each = run.ranks_per_host or max(1, gpus)
    devices = ["--ranks", str(ranks_each), "--devices", "cuda" if gpus else "cpu"]
    documents = manifests(
        ClusterRun(
            name=name,
            namespace=namespace,
            image=image,
            token=secrets.token_hex(16),
            port=loaded.join.port or 1337,
            hosts=run.hosts,
            gpus=gpus,
            claim=claim,
            launcher_words=(job_there, *_words(loaded, ranks_each=ranks_each), *devices),
            host_words=("--job", job_there, *devices, *_host_words(loaded)),
        )
    )
    write_line("---\n".join(map(yaml_text, documents)).rstrip("\n"))
    return 0


def _words(loaded: "LoadedRun", *, ranks_each: int) -> list[str]:
    """Return what was given on the command line, for the launcher inside; and the quorum."""
    from flodl_core.config.keys import KEYS
    from flodl_core.config.sources import SourceKind

    words: list[str] = []
    left_out = {*_SAID_HERE, "run.job", "run.devices", "run.ranks_per_host", "join.port"}
    for dotted, given in loaded.resolved.items():
        key, value = KEYS[dotted], given.value
        if given.source.kind is not SourceKind.FLAG or dotted in left_out:
            continue
        if isinstance(value, bool):
            words.append(key.flag if value else f"--no-{key.flag[2:]}")
        elif isinstance(value, dict):
            for name, part in value.items():
                words += [key.flag, f"{name}={_text(part)}"]
        else:
            words += [key.flag, _text(value)]
    ranks = loaded.run.hosts * ranks_each
    if loaded.run.hosts > 1 and loaded.join.min_rank_start is None:
        words += ["--min-rank-start", str(ranks), "--target-ranks", str(ranks)]
    return words


def _host_words(loaded: "LoadedRun") -> list[str]:
    run = loaded.run
    words = []
    for flag, value in (
        ("--micro-batch", run.micro_batch),
        ("--loader-workers", run.loader_workers),
    ):
        words += [flag, str(value)] if value is not None else []
    return words


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _refused(field: str, value: str, reason: str, fix: str) -> ConfigError:
    return ConfigError(field, value, reason, source=f"flag --{field}", fix=fix)
