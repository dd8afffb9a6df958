"""What the console costs: of a core, of the line to the terminal, and from key to screen.

    python tests/bench/console_load.py --ranks 64 --size 120x36

One process serves the documents of a made-up run, two a second; the console attaches to
it in a pseudo-terminal, as a person's would. Printed are its processor time, the bytes
that it wrote to the terminal, and how long it took from a key to the first byte of what
the key changed. It asserts nothing: figures depend on the machine and on what else it does.
"""

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from flodl_console.demo.scenarios import open_scenario
from flodl_core.telemetry.state import publish

DOCUMENT_EVERY_S = 0.5
SERVED_FROM_S = 600.0
SERVED_S = 60.0
PAGE_ROWS = 20_000
"""Windows times ranks of one page, so that it stays small."""

QUIET_S = 0.06
KEY_WAIT_S = 2.0
READ_BYTES = 1 << 16


@dataclass
class Seen:
    """What the console did in the time measured."""

    bytes_written: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    key_ms: list[float] = field(default_factory=list)


def serve(ranks: int) -> None:
    """Serve a made-up run until killed; the first line of output is the port."""
    run = open_scenario("training", ranks=ranks)
    count = int(SERVED_S / DOCUMENT_EVERY_S)
    times = [SERVED_FROM_S + DOCUMENT_EVERY_S * index for index in range(count)]
    bodies = [publish(run.document_at(at_s)) for at_s in times]
    began = time.monotonic()

    def position() -> int:
        return min(int((time.monotonic() - began) / DOCUMENT_EVERY_S), count - 1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            since = int(parse_qs(asked.query).get("since", ["0"])[0])
            at_s = times[position()]
            if asked.path == "/history":
                page = run.windows_until(at_s, since=since)
            elif asked.path == "/events":
                page = run.events_until(at_s, since=since)
            else:
                self.answer(bodies[position()])
                return
            records = page.records[: max(1, PAGE_ROWS // ranks)]
            short = page.model_copy(update={"records": records})
            self.answer(short.model_dump_json().encode())

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *words: object) -> None:
            """Say nothing of a reader that went away."""

    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


@contextmanager
def served(ranks: int) -> Iterator[int]:
    """Yield the port of a made-up run that another process serves."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", "--ranks", str(ranks)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def shown(port: int, width: int, height: int) -> Iterator[tuple[int, int]]:
    """Yield process and terminal of a console that is attached to a port."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        command = str(Path(sys.executable).with_name("flodl"))
        os.execv(command, [command, "console", "--attach", f"127.0.0.1:{port}", "--read-only"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    os.kill(pid, signal.SIGWINCH)
    try:
        yield pid, terminal
    finally:
        with suppress(OSError):
            os.write(terminal, b"q")
        read_for(terminal, 1.0)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def read_for(terminal: int, seconds: float) -> int:
    """Read what the console writes for some time; return how many bytes."""
    total, until = 0, time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                total += len(os.read(terminal, READ_BYTES))
            except OSError:
                return total
    return total


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def key_ms(terminal: int, key: bytes) -> float | None:
    """Return the time from a key to the first byte that follows; None if none does."""
    while select.select([terminal], [], [], QUIET_S)[0]:
        os.read(terminal, READ_BYTES)
    began = time.perf_counter()
    os.write(terminal, key)
    if not select.select([terminal], [], [], KEY_WAIT_S)[0]:
        return None
    return 1000 * (time.perf_counter() - began)


def measure(arguments: argparse.Namespace) -> Seen:
    """Run the console and return what it did once it had settled."""
    width, height = (int(part) for part in arguments.size.split("x"))
    seen = Seen()
    with served(arguments.ranks) as port, shown(port, width, height) as (pid, terminal):
        read_for(terminal, arguments.settle_s)
        began, spent = time.monotonic(), cpu_s(pid)
        seen.bytes_written = read_for(terminal, arguments.seconds)
        seen.wall_s, seen.cpu_s = time.monotonic() - began, cpu_s(pid) - spent
        for number in range(arguments.keys):
            took = key_ms(terminal, b"j" if number % 8 < 4 else b"k")
            if took is not None:
                seen.key_ms.append(took)
    return seen


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("--ranks", type=int, default=64)
    words.add_argument("--size", default="120x36")
    words.add_argument("--settle-s", type=float, default=6.0)
    words.add_argument("--seconds", type=float, default=20.0)
    words.add_argument("--keys", type=int, default=24)
    words.add_argument("--serve", action="store_true")
    arguments = words.parse_args()
    if arguments.serve:
        serve(arguments.ranks)
        return
    seen = measure(arguments)
    took = sorted(seen.key_ms)
    print(f"{arguments.ranks} ranks at {1 / DOCUMENT_EVERY_S:g} Hz in {arguments.size}")
    print(f"processor        {100 * seen.cpu_s / seen.wall_s:8.2f} % of a core")
    print(f"to the terminal  {seen.bytes_written / seen.wall_s / 1000:8.2f} kB/s")
    if took:
        middle = took[len(took) // 2]
        print(f"key to screen    {middle:8.1f} ms (median of {len(took)}; worst {took[-1]:.1f})")


if __name__ == "__main__":
    main()
