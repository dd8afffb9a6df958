"""`flodl manifests JOB --image IMAGE`: a run as manifests for `kubectl apply -f -`.

What it is: settings in, YAML out, with a fresh join token in its secret, and with tls a fresh
certificate in another.
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
from flodl_core.ids import StartMode

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
    "join.tls",
    "join.tls_identity",
    "join.advertise",
)
"""What the manifests say themselves, or what a cluster has another word for."""
_READ_HERE: Final = ("run.hosts", "join.tls")
"""Of these, what the manifests are made from."""
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?")


@with_settings(
    tuple(
        key
        for key in setting_keys(RUN_TABLES)
        if key.dotted not in _SAID_HERE or key.dotted in _READ_HERE
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
    """Print a run of JOB as manifests: secrets, service, the launcher's Job and its hosts' Job.

    --hosts counts pods, the launcher's own included. Settings given here, by words, variables
    or the settings file, are handed to the launcher; JOB must be found inside the image. With
    --tls a certificate is made for this run and lies in a secret of the launcher's pod.
    """
    from flodl_core.cli.lines import write_line
    from flodl_core.config.load import load_run
    from flodl_core.placement.kubernetes import ClusterRun, manifests
    from flodl_core.placement.yaml_text import yaml_text

    given = {**with_step_ms(flags, step_ms), "job": job}
    loaded = load_run(given, config_file=config_file, needs_job=True)
    if not image:
        raise _refused("image", image, "no image was given", "give --image REGISTRY/NAME:TAG")
    run, job_there = loaded.run, loaded.run.job or ""
    name = run.name or re.sub(r"[^a-z0-9]+", "-", job_there.lower()).strip("-")
    for field, word in (("name", name), ("namespace", namespace), ("claim", claim)):
        if word is not None and not _NAME.fullmatch(word):
            fix = f"give --{field} with a-z, 0-9 and dashes, at most 42 characters"
            raise _refused(field, word, "is no name of DNS", fix)
    secret, identity = _make_secret(has_tls=loaded.join.tls)
    ranks_each = run.ranks_per_host or max(1, gpus)
    devices = ["--ranks", str(ranks_each), "--devices", "cuda" if gpus else "cpu"]
    documents = manifests(
        ClusterRun(
            name=name,
            namespace=namespace,
            image=image,
            token=secret,
            identity=identity,
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


def _make_secret(*, has_tls: bool) -> tuple[str, str | None]:
    """Return a fresh join token's text, and with TLS the PEM of the certificate that it names."""
    import secrets

    from flodl_core.config.join_token import JoinToken

    secret = secrets.token_bytes(16)
    if not has_tls:
        return JoinToken(secret=secret).text(), None
    from flodl_core.net.tls_identity import make_pem, read_identity

    pem = make_pem()
    token = JoinToken(secret=secret, fingerprint=read_identity(pem).fingerprint)
    return token.text(), pem.decode()


def _words(loaded: "LoadedRun", *, ranks_each: int) -> list[str]:
    """Return what was given here, wherever it stood, for the launcher inside; and the quorum."""
    words: list[str] = []
    left_out = {*_SAID_HERE, "run.job", "run.devices", "run.ranks_per_host", "join.port"}
    for dotted in loaded.resolved:
        if dotted not in left_out:
            words += _setting_words(loaded, dotted)
    ranks = loaded.run.hosts * ranks_each
    if loaded.run.hosts > 1 and loaded.join.min_rank_start is None:
        words += ["--min-rank-start", str(ranks)]
        if loaded.join.start_mode is not StartMode.MANUAL and loaded.join.target_ranks is None:
            words += ["--target-ranks", str(ranks)]
    return words


def _host_words(loaded: "LoadedRun") -> list[str]:
    """Return what was given here and every host is told by itself."""
    names = ("run.micro_batch", "run.loader_workers", "net.timeout_scale")
    return [word for name in names for word in _setting_words(loaded, name)]


def _setting_words(loaded: "LoadedRun", dotted: str) -> list[str]:
    """Return the words of one setting; none if it was not given.

    A ceiling is told as it was given: the command that reads it multiplies it again.
    """
    from flodl_core.config.keys import KEYS
    from flodl_core.config.sources import SourceKind

    key, given = KEYS[dotted], loaded.resolved[dotted]
    value = given.value
    if given.source.kind in (SourceKind.DEFAULT, SourceKind.DERIVED) or value is None:
        return []
    if isinstance(value, bool):
        return [key.flag if value else f"--no-{key.flag[2:]}"]
    if isinstance(value, dict):
        return [
            word for name, part in value.items() for word in (key.flag, f"{name}={_text(part)}")
        ]
    if key.scaled and isinstance(value, float):
        value = value / loaded.net.timeout_scale
    return [key.flag, _text(value)]


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _refused(field: str, value: str, reason: str, fix: str) -> ConfigError:
    return ConfigError(field, value, reason, source=f"flag --{field}", fix=fix)
