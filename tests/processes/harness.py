"""Runs of the real command, looked at from outside.

`Launched` starts `flodl headless … --json` in a directory of its own, reads its
lines as they come, finds its processes by /proc, and checks in the end that nothing
is left of it. Every wait has a ceiling, and fails with the run's own story.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import process_table as table
from process_table import Process

T = TypeVar("T")
Document = dict[str, Any]
Row = dict[str, Any]

FLODL = str(Path(sys.executable).with_name("flodl"))
_SETPRIV = shutil.which("setpriv")
WITH_US = [_SETPRIV, "--pdeathsig", "KILL"] if _SETPRIV else []
"""Ends a run with the tests, where these are killed themselves."""

SHORT_S = 60.0
"""For what takes a moment on a machine that has nothing else to do."""
LONG_S = 180.0
"""For what loads the tensor library in several processes."""

_STORY_LINES = 30


def environment(place: Path, mark: str) -> dict[str, str]:
    """The environment of a command: no settings, temporary files in `place`, and the mark.

    The tensor library makes a folder for a cache of its own, which is none of ours.
    """
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FLODL_", "PYTEST_", "COV_"))
    }
    temporary = place / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    own = {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(place / "torch")}
    return {**plain, **own, table.MARK: mark}


class Launched:
    """One run of `flodl headless`, from its start to nothing left.

    Args:
        place: an empty directory; the run's working directory.
        words: after `flodl headless --mode cpu_sync`.
        port: to listen on; 0 is any.
        as_json: whether it prints JSON lines; plain lines are rows of the event `line`.
        extra: further variables of its environment.
        through: a command that becomes the one after it, such as `ip netns exec NAME`.
    """

    def __init__(
        self,
        place: Path,
        *words: str,
        port: int = 0,
        as_json: bool = True,
        extra: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
    ) -> None:
        self.place = place
        self.mark = uuid.uuid4().hex
        self.env = {**environment(place, self.mark), **(extra or {})}
        self.rows: list[Row] = []
        self._shared_before = table.shared_memory_files()
        self._beside: list[Beside] = []
        self._news = threading.Condition()
        self._is_silent = False
        self._may_read = threading.Event()
        self._may_read.set()
        self._stderr = place / "stderr.txt"
        with self._stderr.open("wb") as stderr:
            self._popen = subprocess.Popen(
                [
                    *(*WITH_US, *through, FLODL, "headless", "--mode", "cpu_sync", *words),
                    *("--port", str(port), *(["--json"] * as_json)),
                ],
                cwd=place,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        self.launcher = Process(self._popen.pid, "launcher")
        self._reader = threading.Thread(target=self._read, name="reader", daemon=True)
        self._reader.start()

    # -- what it says ---------------------------------------------------------------

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for raw in self._popen.stdout:
            self._may_read.wait()
            line = raw.decode(errors="replace").rstrip("\n")
            is_json = line.startswith("{")
            row = json.loads(line) if is_json else {"event": "line", "text": line}
            with self._news:
                self.rows.append(row)
                self._news.notify_all()
        with self._news:
            self._is_silent = True
            self._news.notify_all()

    def stop_reading(self) -> None:
        """Take nothing more of what it prints, and leave little room for it."""
        assert self._popen.stdout is not None
        fcntl.fcntl(self._popen.stdout, fcntl.F_SETPIPE_SZ, 4096)
        self._may_read.clear()

    def read_on(self) -> None:
        """Take what was left, and go on."""
        self._may_read.set()

    def until(self, what: str, look: Callable[[], T], within_s: float = LONG_S) -> T:
        """Wait until `look` is true, looking at each new line; fails after `within_s`."""
        with self._news:
            answer: list[T] = []

            def found() -> bool:
                answer[:] = [look()]
                return bool(answer[0])

            self._news.wait_for(lambda: found() or self._is_silent, timeout=within_s)
            if answer[0]:  # what was seen may be over by now
                return answer[0]
        when = "before the run's end" if self._is_silent else f"within {within_s:g} s"
        raise AssertionError(f"{what}: did not come {when}\n{self.story()}")

    @property
    def document(self) -> Document:
        """The last status document that was printed; empty before the first."""
        return next((row["state"] for row in reversed(self.rows) if row["event"] == "state"), {})

    def texts(self, event: str) -> list[str]:
        """The lines of one kind so far: note, alert, refused, joined, rank, phase …"""
        return [row["text"] for row in self.rows if row["event"] == event]

    def until_said(self, event: str, part: str, within_s: float = LONG_S, *, kind: str = "") -> str:
        """Wait for a line of an event that holds `part`, and `kind`; returns it."""

        def said() -> str:
            lines = self.texts(event)
            return next((text for text in lines if part in text and kind in text), "")

        return self.until(f"{event} with {part!r}", said, within_s)

    def until_lost(self, rank: int, within_s: float = LONG_S) -> str:
        """Wait for the alert that a rank was lost, of all that may be said of it; returns it."""
        return self.until_said("alert", f": rank {rank} (", within_s, kind="rank_lost")

    def until_phase(self, phase: str, within_s: float = LONG_S) -> None:
        """Wait until the run is in a phase or was."""
        self.until_said("phase", phase, within_s)

    def until_trained(self, samples: int, within_s: float = LONG_S) -> int:
        """Wait until so many samples are trained; returns how many are."""
        return self.until(
            f"{samples} samples trained", lambda: self._trained(at_least=samples), within_s
        )

    def _trained(self, at_least: int) -> int:
        training = self.document.get("training") or {}
        done = int(training.get("samples_done", 0))
        return done if done >= at_least else 0

    @property
    def summary(self) -> Row:
        """The summary that was printed last."""
        assert self.rows[-1]["event"] == "summary", self.story()
        row: Row = self.rows[-1]["summary"]
        return row

    @property
    def error(self) -> Row:
        """The error that was printed last."""
        assert self.rows[-1]["event"] == "error", self.story()
        return self.rows[-1]

    @property
    def launcher_ended(self) -> bool:
        """Whether the command has ended, for whatever reason."""
        return self._popen.poll() is not None

    @property
    def stderr(self) -> str:
        """Everything on standard error so far."""
        return self._stderr.read_text(errors="replace")

    # -- where it is ----------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The run's directory; there once it has said its first word."""
        self.until("the first line", lambda: self.rows, SHORT_S)
        return next(self.place.glob("runs/*/live")).parent

    @property
    def port(self) -> int:
        """The real port."""
        self.until_said("note", "listens on", SHORT_S)
        return int((self.directory / "port").read_text())

    @property
    def address(self) -> str:
        """`host:port` of the launcher."""
        return f"127.0.0.1:{self.port}"

    @property
    def token_file(self) -> Path:
        """The join token's file."""
        return self.directory / "token"

    @property
    def stem(self) -> Path:
        """Of the bundle, where no save path was given."""
        return self.directory / "checkpoints" / "consensus"

    def fetch_state(self, timeout_s: float = 10.0) -> Document:
        """GET /state.json."""
        answer = httpx.get(f"http://{self.address}/state.json", timeout=timeout_s, trust_env=False)
        assert answer.status_code == 200, answer.text
        document: Document = answer.json()
        return document

    # -- its processes ---------------------------------------------------------------

    def processes(self) -> dict[str, Process]:
        """Its living processes by name."""
        return {one.name: one for one in table.find_processes(self.mark)}

    def process(self, name: str) -> Process:
        """One living process, once it is there."""
        found = table.look_until(lambda: self.processes().get(name), SHORT_S)
        assert found is not None, f"no {name} among {list(self.processes())}\n{self.story()}"
        return found

    def children_of_launcher(self) -> list[Process]:
        """The living processes that the launcher started itself."""
        return [
            one
            for one in self.processes().values()
            if table.parent_of(one.pid) == self.launcher.pid and one.name != "launcher"
        ]

    def kill(self, *names: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to processes, as nearly at once as can be."""
        for one in [self.process(name) for name in names]:
            one.send(number)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the launcher."""
        self.launcher.send(number)

    def flodl(self, *words: str, within_s: float = SHORT_S) -> "Said":
        """Run another command beside it, in the same directory, to its end."""
        return run_flodl(self.place, *words, env=self.env, within_s=within_s)

    def start_flodl(self, *words: str, through: Sequence[str] = ()) -> "Beside":
        """Start another command beside it, which ends with the test at the latest."""
        self._beside.append(Beside(self.place, *words, env=self.env, through=through))
        return self._beside[-1]

    # -- its end ---------------------------------------------------------------------

    def finish(self, within_s: float = LONG_S, *, leaves_guest: bool = False) -> int:
        """Wait for its end; returns the exit code after checking that nothing is left.

        Args:
            within_s: longest wait.
            leaves_guest: a guest's processes may still be there; nothing is checked then.
        """
        try:
            code = self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {within_s:g} s\n{self.story()}") from None
        self._reader.join(SHORT_S)
        if not leaves_guest:
            self.check_nothing_left()
        return code

    def await_all_gone(self, within_s: float) -> None:
        """Wait until none of its processes is left, which the launcher's end may not wait for."""
        self._popen.wait(within_s)
        left = table.await_ends(table.find_processes(self.mark), within_s)
        assert not left, f"left after {within_s:g} s: {', '.join(map(str, left))}\n{self.story()}"
        self._reader.join(SHORT_S)
        self.check_nothing_left()

    def check_nothing_left(self) -> None:
        """No process, listening port, shared memory or half written file outlives the run."""
        left = table.find_processes(self.mark)
        assert not left, f"left: {', '.join(map(str, left))}\n{self.story()}"
        port_file = next(self.place.glob("runs/*/port"), None)
        if port_file is not None:
            assert int(port_file.read_text()) not in table.listening_ports()
        self._check_shared_memory()
        temporary = list((self.place / "tmp").rglob("*"))
        assert not temporary, f"left: {temporary}"
        parts = [
            path
            for path in self.place.rglob("*")
            if path.name.endswith((".part", ".tmp", ".trial")) or path.name.startswith(".")
        ]
        assert not parts

    def _check_shared_memory(self) -> None:
        """A file of a run beside this one may be seen before that one holds it."""
        new = table.shared_memory_files() - self._shared_before
        left = table.look_until(lambda: not table.unheld(new), SHORT_S)
        assert left, f"left in /dev/shm: {sorted(table.unheld(new))}"

    def check_quiet(self) -> None:
        """No process has printed a traceback or a warning of the interpreter."""
        texts = {path: path.read_text(errors="replace") for path in self.place.rglob("logs/*.out")}
        texts[self._stderr] = self.stderr
        for path, text in texts.items():
            for word in ("Traceback", "Warning:", "never retrieved", "was destroyed"):
                assert word not in text, f"{path}: {text[-3000:]}"

    def destroy(self) -> None:
        """End whatever is left of it by force; a run that ended loses nothing."""
        for one in table.find_processes(self.mark):
            try:
                one.send(signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._popen.kill()
        self._popen.wait(SHORT_S)
        self._reader.join(SHORT_S)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        for command in self._beside:
            command.destroy()

    def story(self) -> str:
        """What a reader of a failed test wants to see."""
        said = [json.dumps(row)[:400] for row in self.rows if row["event"] != "state"]
        document = {k: v for k, v in self.document.items() if k not in ("epochs", "members")}
        logs = []
        for path in sorted(self.place.rglob("logs/*")):
            lines = path.read_text(errors="replace").splitlines()
            logs += [f"--- {path.name}", *(line[:300] for line in lines[-_STORY_LINES // 2 :])]
        return "\n".join(
            [
                f"--- lines (exit code {self._popen.poll()})",
                *said[-_STORY_LINES:],
                "--- last document",
                json.dumps(document)[:4000],
                "--- processes",
                ", ".join(map(str, table.find_processes(self.mark))),
                "--- standard error",
                self.stderr[-3000:],
                *logs,
            ]
        )


class Said:
    """What a command that has ended said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


class Beside:
    """A command that goes on while the test looks elsewhere."""

    def __init__(
        self, place: Path, *words: str, env: dict[str, str], through: Sequence[str] = ()
    ) -> None:
        self.words = words
        self._popen = subprocess.Popen(
            [*WITH_US, *through, FLODL, *words],
            cwd=place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def finish(self, within_s: float = LONG_S) -> Said:
        """Wait for its end; it is killed if it does not come."""
        try:
            out, err = self._popen.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            out, err = self._popen.communicate()
            raise AssertionError(
                f"flodl {' '.join(self.words)}: no end within {within_s:g} s\n{out}\n{err}"
            ) from None
        return Said(self._popen.returncode, out, err)

    def destroy(self) -> None:
        """End it by force if it has not ended."""
        if self._popen.returncode is None:
            self._popen.kill()
            self._popen.communicate()


def run_flodl(
    place: Path, *words: str, env: dict[str, str] | None = None, within_s: float = SHORT_S
) -> Said:
    """Run a command to its end."""
    return Beside(place, *words, env=env or environment(place, uuid.uuid4().hex)).finish(within_s)


Launch = Callable[..., Launched]


def launching(base: Path) -> Iterator[Launch]:
    """Yield what starts runs, each in a directory of its own in `base`; ends what is left."""
    started: list[Launched] = []

    def start(
        *words: str, port: int = 0, as_json: bool = True, extra: dict[str, str] | None = None
    ) -> Launched:
        place = base / f"run{len(started)}"
        place.mkdir()
        started.append(Launched(place, *words, port=port, as_json=as_json, extra=extra))
        return started[-1]

    yield start
    for run in started:
        run.destroy()
