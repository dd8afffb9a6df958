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
    --tls a certificate is made for this run and lies in a secret of the launcher's pod. One
    rank in one pod trains alone, and listens inside its pod only.
    """
    from flodl_core.cli.lines import write_line
    from flodl_core.config.load import load_run
    from flodl_core.config.window import trains_solo
    from flodl_core.config.words import agent_words
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
    asked, ranks_each = _devices(loaded, gpus)
    devices = ("--ranks", str(ranks_each), "--devices", asked)
    handed_on = agent_words(loaded, is_verbose=is_verbose)
    inside = loaded.join.model_copy(update={"bind": "127.0.0.1"})
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
            launcher_words=(
                *(job_there, *_words(loaded, ranks_each=ranks_each), *devices),
                *(["--verbose"] if is_verbose else []),
            ),
            host_words=("--job", job_there, *devices, *_host_words(loaded), *handed_on),
            is_alone=trains_solo(inside, local_ranks=ranks_each, hosts=run.hosts),
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


def _devices(loaded: "LoadedRun", gpus: int) -> tuple[str, int]:
    """Return the devices that each pod is told, and its number of ranks.

    Raises:
        ConfigError: they are devices that a pod does not get, or too few for its ranks.
    """
    from flodl_core.config.placement import place_ranks

    there = tuple(f"cuda:{number}" for number in range(gpus))
    asked = loaded.run.devices
    if asked == ("all",):
        asked = ("cuda",) if gpus else ("cpu",)
    source = str(loaded.resolved["run.devices"].source)
    known = {*there, *(["cuda"] if gpus else [])}
    missing = [one for one in asked if not one.startswith("cpu") and one not in known]
    if missing:
        raise ConfigError(
            "devices",
            ",".join(asked),
            f"a pod gets {gpus or 'no'} GPU{'s' * (gpus != 1)}, and no {missing[0]}",
            source=source,
            fix="give --gpus as many as a pod is to use, or cpu",
        )
    pod = loaded.run.model_copy(update={"hosts": 1, "devices": asked})
    (placed,) = place_ranks(pod, there, source=source).devices
    return ",".join(asked), len(placed)


def _words(loaded: "LoadedRun", *, ranks_each: int) -> list[str]:
    """Return what was given here, wherever it stood, for the launcher inside; and the quorum."""
    from flodl_core.config.words import setting_words

    words: list[str] = []
    left_out = {*_SAID_HERE, "run.job", "run.devices", "run.ranks_per_host", "join.port"}
    for dotted in loaded.resolved:
        if dotted not in left_out:
            words += setting_words(loaded, dotted)
    ranks = loaded.run.hosts * ranks_each
    if loaded.run.hosts > 1 and loaded.join.min_rank_start is None:
        words += ["--min-rank-start", str(ranks)]
        if loaded.join.start_mode is not StartMode.MANUAL and loaded.join.target_ranks is None:
            words += ["--target-ranks", str(ranks)]
    return words


def _host_words(loaded: "LoadedRun") -> list[str]:
    """Return what every host is told of what a launcher is told of its own ranks."""
    from flodl_core.config.words import setting_words

    names = ("run.micro_batch", "run.loader_workers")
    return [word for name in names for word in setting_words(loaded, name)]


def _refused(field: str, value: str, reason: str, fix: str) -> ConfigError:
    return ConfigError(field, value, reason, source=f"flag --{field}", fix=fix)
