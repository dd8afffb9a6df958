"""Roads for tests: a stand-in for ssh, a real sshd, a real Slurm of one node, a real Ray.

Whatever is at the end of a road is found by the label of its host, which stands in the words
of every process there; those of a road that hands on the environment carry the run's mark.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from process_table import MARK, look_until

DAEMON_S = 30.0


def stand_in_ssh(place: Path) -> Path:
    """Make a command `ssh` that runs the remote line here; return its directory."""
    return _command(place, "ssh", 'for last; do :; done\nexec sh -c "$last"\n')


def path_with(folder: Path) -> dict[str, str]:
    """Return the variable under which commands of a folder are found first."""
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def write_workers(place: Path, *workers: str) -> None:
    """Write a settings file with the given items; each knows this interpreter."""
    python = f'python = "{sys.executable}"\n'
    items = [f"[[workers]]\n{item}\n{'' if 'python =' in item else python}" for item in workers]
    (place / "flodl.toml").write_text("\n".join(items))


def labelled(label: str) -> list[str]:
    """Return the command lines of living processes that belong to a host of that label."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            is_host = "--host" in words and words[words.index("--host") + 1] == label
            if is_host and state != "Z":
                found.append(" ".join(words))
    return found


def until_none(label: str, within_s: float) -> list[str]:
    """Wait until nothing of a host lives; return what is left."""
    look_until(lambda: not labelled(label), within_s)
    return labelled(label)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# -- a real sshd ------------------------------------------------------------------------


def why_no_sshd() -> str:
    """Return why there can be no sshd; empty if there can."""
    missing = [name for name in ("sshd", "ssh", "ssh-keygen") if _which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "an sshd of our own needs root"


@contextmanager
def sshd(
    place: Path, address: str, *, names: Sequence[str], through: Sequence[str] = ()
) -> Iterator[Path]:
    """Run an sshd that lets us in; yield the directory of an `ssh` that knows it.

    Args:
        place: an empty directory.
        address: that it listens on.
        names: by which the `ssh` knows it.
        through: the command that it is started through.
    """
    place.mkdir(parents=True)
    for key in ("user", "host"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / key)]
        subprocess.run(words, check=True)
    Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    port = free_port()
    (place / "sshd_config").write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {place}/host\n"
        f"AuthorizedKeysFile {place}/user.pub\nPermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\nUsePAM no\nStrictModes no\nPidFile none\n"
    )
    (place / "ssh_config").write_text(
        f"Host {' '.join(names)}\n  HostName {address}\n  Port {port}\n  User root\n"
        f"  IdentityFile {place}/user\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n"
        "  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    )
    real = _which("ssh")
    folder = _command(place, "ssh", f'exec {real} -F {place}/ssh_config "$@"\n')
    with (place / "sshd.log").open("wb") as log:
        daemon = subprocess.Popen(
            [*through, str(_which("sshd")), "-D", "-e", "-f", str(place / "sshd_config")],
            stdout=log,
            stderr=log,
        )
    try:
        said = place / "sshd.log"
        assert look_until(lambda: "listening" in said.read_text(), DAEMON_S), said.read_text()
        yield folder
    finally:
        daemon.terminate()
        daemon.wait(DAEMON_S)


# -- a real Slurm of one node -------------------------------------------------------------


def why_no_slurm() -> str:
    """Return why there can be no Slurm; empty if there can."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun") if _which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "daemons of Slurm need root"


@contextmanager
def slurm(place: Path) -> Iterator[dict[str, str]]:
    """Run a Slurm of this one machine; yield the variables that lead to it."""
    for part in ("spool", "state", "munge"):
        (place / part).mkdir(parents=True)
    (place / "munge").chmod(0o755)
    key = place / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    node = socket.gethostname().partition(".")[0]
    conf = place / "slurm.conf"
    ports = (free_port(), free_port())
    conf.write_text(
        f"ClusterName=lab\nSlurmctldHost={node}(127.0.0.1)\nSlurmctldPort={ports[0]}\n"
        f"SlurmdPort={ports[1]}\nAuthType=auth/munge\nCredType=cred/munge\n"
        f"AuthInfo=socket={place}/munge/socket\nSlurmUser=root\nSlurmdUser=root\n"
        f"StateSaveLocation={place}/state\nSlurmdSpoolDir={place}/spool\n"
        f"SlurmctldPidFile={place}/ctld.pid\nSlurmdPidFile={place}/d.pid\n"
        f"SlurmctldLogFile={place}/ctld.log\nSlurmdLogFile={place}/d.log\n"
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
        "JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n"
        "SelectTypeParameters=CR_CPU\nReturnToService=2\nMpiDefault=none\n"
        "KillWait=2\nSchedulerParameters=sched_interval=2,bf_interval=2\n"
        f"NodeName={node} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN\n"
        f"PartitionName=all Nodes={node} Default=YES State=UP OverSubscribe=FORCE:8\n"
    )
    env = {**os.environ, "SLURM_CONF": str(conf)}
    munged = [str(_which("munged")), "--force", "--foreground", f"--key-file={key}"]
    munged += [f"--{name}={place}/munge/{end}" for name, end in (
        ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"),
    )]  # fmt: skip
    daemons = []
    try:
        for words in (munged, [str(_which("slurmctld")), "-D"], [str(_which("slurmd")), "-D"]):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            daemons.append(subprocess.Popen(words, env=env, **quiet))  # type: ignore[call-overload]
            if words is munged:
                assert look_until((place / "munge" / "socket").exists, DAEMON_S)
        idle = ["sinfo", "--noheader", "--states=idle"]
        assert look_until(
            lambda: subprocess.run(idle, env=env, capture_output=True, check=False).stdout,
            DAEMON_S,
        )
        yield {"SLURM_CONF": str(conf)}
    finally:
        end_all = ["scancel", "--full", "--signal=KILL", f"--user={os.geteuid()}"]
        subprocess.run(end_all, env=env, check=False, capture_output=True, timeout=DAEMON_S)
        left = ["squeue", "--noheader"]
        look_until(
            lambda: not subprocess.run(left, env=env, capture_output=True, check=False).stdout,
            DAEMON_S,
        )
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(DAEMON_S)


# -- a real Ray of one node -----------------------------------------------------------------


def why_no_ray() -> str:
    """Return why there can be no Ray; empty if there can."""
    return "" if importlib.util.find_spec("ray") else "not installed: ray"


@contextmanager
def ray_cluster() -> Iterator[dict[str, str]]:
    """Run a Ray of this one machine; yield the variables that lead to it.

    It keeps sockets in its directory, whose name must be short.
    """
    place = tempfile.mkdtemp(prefix="ray")
    port = free_port()
    ray = str(Path(sys.executable).with_name("ray"))
    env = {name: value for name, value in os.environ.items() if name != MARK}
    temporary = f"--temp-dir={place}"
    subprocess.run(
        [ray, "start", "--head", f"--port={port}", "--num-cpus=4", "--include-dashboard=false",
         "--disable-usage-stats", temporary],
        env=env, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    try:
        yield {"RAY_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        subprocess.run([ray, "stop", "--force"], env=env, check=True, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def _command(place: Path, name: str, body: str) -> Path:
    folder = place / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}")
    (folder / name).chmod(0o755)
    return folder


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
