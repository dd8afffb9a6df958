"""The directory of one run, and how the newest live run is found.

    runs/<name>-<run id>/
        config.json  token (0600)  port  address  live  summary.json
        save_stem, where checkpoints lie elsewhere
        logs/  records/  checkpoints/  samples.jsonl

What it is: names of files, and the few that are written whole at once.
What it is not: the writers of logs, records, samples and checkpoints.
Who drives it: the launcher creates and owns it, agents on further hosts open
one of their own to keep logs in, `start`, `status` and `stop` find it.

A run is live while its launcher holds a lock on `live`; the system frees that
lock however the launcher ends, so a run that was killed is never taken for one
that goes on.
"""

import contextlib
import itertools
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flodl_core.config.rules import review_encoding
from flodl_core.errors import ConfigError, FlodlError
from flodl_core.ids import RunId
from flodl_core.telemetry.live_lock import HeldError, LiveLock, is_held

CHECKPOINT_STEM: Final = "consensus"
LIVE_FILE: Final = "live"

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class NoLiveRunError(FlodlError):
    """No run that goes on was found where it was looked for."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One run's directory; its properties are paths, whether or not they exist yet."""

    path: Path
    run_id: RunId
    _locks: list[LiveLock] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def create(cls, base: Path, name: str, run_id: RunId) -> "RunDirectory":
        """Make the directory and hold its lock; the caller is the run's launcher.

        Args:
            base: the directory of all runs, made if missing.
            name: of the run; whatever cannot be in a file name becomes "-".
            run_id: sixteen hex characters.

        Raises:
            ConfigError: the directory cannot be made, or is another live run's.
        """
        made = cls.open(base, name, run_id)
        made._hold_lock()
        return made

    @classmethod
    def open(cls, base: Path, name: str, run_id: RunId) -> "RunDirectory":
        """Make the directory where it is missing, without owning the run.

        Raises:
            ConfigError: it cannot be made, or cannot be told to another process.
        """
        review_encoding("run_dir", base, source="resolved")
        path = base / run_label(name, run_id)
        try:
            for part in (path, path / "logs", path / "records", path / "checkpoints"):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _no_directory(base, path, error) from error
        return cls(path.absolute(), run_id)

    @property
    def name(self) -> str:
        """The run's name, without its id."""
        return self.path.name.removesuffix(f"-{self.run_id}")

    @property
    def words(self) -> tuple[str, str, str]:
        """By what the run is called: its name, its id, its directory."""
        return self.name, self.run_id, self.path.name

    @property
    def config_path(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.json"

    @property
    def token_path(self) -> Path:
        """The join token, readable by this user only."""
        return self.path / "token"

    @property
    def records_path(self) -> Path:
        """Where the journal keeps its tree."""
        return self.path / "records"

    @property
    def samples_path(self) -> Path:
        """The sample log, where one is asked for without a path."""
        return self.path / "samples.jsonl"

    @property
    def checkpoint_stem(self) -> Path:
        """The stem of the bundle, where no save path is set."""
        return self.path / "checkpoints" / CHECKPOINT_STEM

    def write_save_stem(self, stem: Path) -> None:
        """Write where the run's checkpoints lie, for who goes on from them.

        Its own place is not written down: it goes where the directory is moved to.
        """
        if stem.absolute() != self.checkpoint_stem:
            _write_whole(self.path / "save_stem", f"{stem.absolute()}\n", 0o644)

    def read_save_stem(self) -> Path:
        """Return where the run's checkpoints lie: its own place, unless another is written down.

        Checkpoints that lie in its own place go before that: a directory that was moved or
        copied may hold the path that it had before.
        """
        own = self.checkpoint_stem
        text = _read(self.path / "save_stem")
        has_own = any(own.parent.glob(f"{own.name}.*"))
        return own if text is None or has_own else Path(text)

    @property
    def summary_path(self) -> Path:
        """What the run came to."""
        return self.path / "summary.json"

    def log_path(self, process: str) -> Path:
        """Return the log file of a process: launcher, relay, rank3 or red-agent."""
        return self.path / "logs" / f"{safe_name(process)}.log"

    def output_path(self, process: str) -> Path:
        """Return the file that a child's own standard output and error go to."""
        return self.path / "logs" / f"{safe_name(process)}.out"

    def write_config(self, values: Mapping[str, object]) -> None:
        """Write the resolved configuration; the caller leaves secrets out."""
        _write_whole(self.config_path, json.dumps(values, indent=2, default=str) + "\n", 0o644)

    def write_token(self, token: str) -> None:
        """Write the join token for this user only."""
        _write_whole(self.token_path, token + "\n", 0o600)

    def read_token(self) -> str | None:
        """Return the join token, or None where there is none.

        Raises:
            ConfigError: others may read the file, so it is no secret.
        """
        try:
            mode = stat.S_IMODE(self.token_path.stat().st_mode)
            text = self.token_path.read_text()
        except OSError:
            return None
        if mode & 0o077:
            raise ConfigError(
                "token",
                str(self.token_path),
                f"other users may read it (mode {mode:o})",
                source="file",
                fix=f"chmod 600 {self.token_path}",
            )
        return text.strip()

    def write_port(self, port: int, *, address: str | None = None) -> None:
        """Write the port that the run listens on, and the address that this box dials.

        Args:
            port: the real one, 1 … 65535.
            address: `host:port`; loopback if None.
        """
        _write_whole(self.path / "address", f"{address or f'127.0.0.1:{port}'}\n", 0o644)
        _write_whole(self.path / "port", f"{port}\n", 0o644)

    def read_port(self) -> int | None:
        """Return the port, or None before one was written."""
        text = _read(self.path / "port")
        return int(text) if text is not None and text.isdecimal() else None

    def read_address(self) -> str | None:
        """Return `host:port` to dial from this box, or None before one was written."""
        return _read(self.path / "address")

    def write_summary(self, summary: str) -> None:
        """Write summary.json."""
        _write_whole(self.summary_path, summary.rstrip("\n") + "\n", 0o644)

    def ending(self) -> str:
        """Return how the run ended as its summary has it, one clause."""
        try:
            summary = json.loads(self.summary_path.read_bytes())
            code, reason, detail = (summary.get(key) for key in ("exit_code", "reason", "detail"))
        except (OSError, ValueError, AttributeError):
            return "has ended without a summary: it was killed, or no world formed"
        why = " ".join(": ".join(str(part) for part in (reason, detail) if part).split())
        return f"has ended with exit code {code}{f' ({why})' if why else ''}"

    def is_live(self) -> bool:
        """Return whether the launcher of this run still lives."""
        return is_held(self.path / LIVE_FILE)

    def close(self) -> None:
        """Free the lock: the run is over. Closing twice is harmless."""
        while self._locks:
            self._locks.pop().close()

    def _hold_lock(self) -> None:
        try:
            self._locks.append(LiveLock(self.path / LIVE_FILE))
        except HeldError as error:
            raise ConfigError(
                "run_dir",
                str(self.path),
                "a live run holds it",
                source="resolved",
                fix="give another --run-dir, or stop that run",
            ) from error
        except OSError as error:
            raise _no_directory(self.path.parent, self.path, error) from error


def _no_directory(base: Path, path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        "run_dir",
        str(base),
        f"cannot make {path} ({error.strerror})",
        source="resolved",
        fix="give a directory that this user may write, with --run-dir",
    )


def find_run(base: Path, *, name: str | None = None) -> RunDirectory:
    """Return the newest run under `base` whose launcher lives, or the one that is named.

    Args:
        base: the directory of all runs, or one run's own directory.
        name: keep only the runs that have this name, id or directory; where none has, those
            whose name, id or directory begins so.

    Raises:
        NoLiveRunError: there is none; the text names the newest that has ended, and how.
        ConfigError: several live runs are named so.
    """
    chosen = _named(list_runs(base), name)
    living = (run for run in chosen if run.is_live())
    live = list(itertools.islice(living, 1 if name is None else None))
    if len(live) > 1:
        raise ConfigError(
            "run",
            name,
            f"{len(live)} live runs are named so",
            source="command line",
            fix=f"give one of {', '.join(run.path.name for run in live)}",
        )
    if live:
        return live[0]
    wanted = f" named {name!r}" if name is not None else ""
    ended = f"; the newest there, {chosen[0].path.name}, {chosen[0].ending()}" if chosen else ""
    raise NoLiveRunError(
        f"no live run{wanted} under {base}{ended}",
        fix="give the run's address, or its --run-dir, or start a run",
    )


def list_runs(base: Path) -> list[RunDirectory]:
    """Return every run directory under `base`, the newest first; none where it is missing.

    Entries that cannot be looked into, such as another user's, are passed over.
    """
    if _begun_ns(base) is not None:
        return [_of_path(base)]
    try:
        looked = [(_begun_ns(path), path.name, path) for path in base.iterdir()]
    except OSError:
        return []
    begun = [(at_ns, name, path) for at_ns, name, path in looked if at_ns is not None]
    return [_of_path(path) for _, _, path in sorted(begun, reverse=True)]


def run_label(name: str, run_id: RunId) -> str:
    """Return what a run's directory is called, and the run in words."""
    return f"{safe_name(name)}-{safe_name(run_id)}"


def safe_name(name: str) -> str:
    """Return a name that is one part of a path: letters, digits, dot, dash and underscore."""
    cleaned = _UNSAFE.sub("-", name).strip("-.")[:80]
    return cleaned or "run"


def _named(runs: list[RunDirectory], name: str | None) -> list[RunDirectory]:
    """Return the runs that a name means: exactly, else by how they begin, else as cleaned."""
    if name is None:
        return runs
    for word in dict.fromkeys((name, safe_name(name))):
        exact = [run for run in runs if word in run.words]
        begun = [run for run in runs if any(one.startswith(word) for one in run.words)]
        if exact or begun:
            return exact or begun
    return []


def _begun_ns(path: Path) -> int | None:
    """Return when a run's directory got its lock; None if it has none that can be seen."""
    try:
        return (path / LIVE_FILE).stat().st_mtime_ns
    except (OSError, ValueError):
        return None


def _of_path(path: Path) -> RunDirectory:
    return RunDirectory(path.absolute(), RunId(path.absolute().name.rpartition("-")[2]))


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _write_whole(path: Path, text: str, mode: int) -> None:
    """Write a file of a run, whole or not at all.

    Raises:
        ConfigError: it cannot be written; the disk may be full.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise ConfigError(
            "run_dir",
            str(path.parent),
            f"cannot write {path.name} there ({error.strerror})",
            source="resolved",
            fix="make room, or give another directory with --run-dir",
        ) from error
