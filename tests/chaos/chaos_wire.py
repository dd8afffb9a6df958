"""A wire between two network namespaces, carried packet by packet by one small process.

Started by `chaos_networks`. It makes a TUN device for each end, gives them to the
namespaces, and passes packets on: late, with losses, or not at all. What it is told
comes on standard input, one line an order: `cut both`, `cut back`, `cut forth`, `heal`,
`slow MILLISECONDS PERCENT`. `forth` is from the first end to the second.
"""

import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
TUN_WITHOUT_HEADER = 0x1001
PACKET_BYTES = 65_536
SEED = 7


def make_end(name: str, namespace: str, address: str, peer: str) -> int:
    """Make a device, give it to a namespace and bring it up; returns its descriptor."""
    fd = open_tun(name)
    for words in (
        ("link", "set", name, "netns", namespace),
        ("-n", namespace, "addr", "add", address, "peer", peer, "dev", name),
        ("-n", namespace, "link", "set", name, "up"),
        ("-n", namespace, "link", "set", "lo", "up"),
    ):
        subprocess.run(["ip", *words], check=True)
    return fd


def open_tun(name: str) -> int:
    """Make a device whose packets are read and written here; returns its descriptor."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), TUN_WITHOUT_HEADER))
    return fd


class Wire:
    """Passes packets between two descriptors."""

    def __init__(self, first: int, second: int) -> None:
        self._others = {first: second, second: first}
        self._first = first
        self._cut: set[int] = set()
        self._delay_s = self._loss = 0.0
        self._chance = random.Random(SEED)
        self._flying: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def obey(self, line: str) -> None:
        """Take one order."""
        match line.split():
            case ["cut", "both"]:
                self._cut = set(self._others)
            case ["cut", "forth"]:
                self._cut = {self._first}
            case ["cut", "back"]:
                self._cut = {self._others[self._first]}
            case ["heal"]:
                self._cut = set()
            case ["slow", milliseconds, percent]:
                self._delay_s, self._loss = float(milliseconds) / 1e3, float(percent) / 100

    def take(self, fd: int) -> None:
        """Take the packets that wait at one end."""
        while True:
            try:
                packet = os.read(fd, PACKET_BYTES)
            except BlockingIOError:
                return
            if fd in self._cut or self._chance.random() < self._loss:
                continue
            self._count += 1
            due = time.monotonic() + self._delay_s
            heapq.heappush(self._flying, (due, self._count, self._others[fd], packet))

    def deliver(self) -> float | None:
        """Pass on what is due; returns when the next packet is, in seconds from now."""
        while self._flying:
            left_s = self._flying[0][0] - time.monotonic()
            if left_s > 0:
                return left_s
            *_, fd, packet = heapq.heappop(self._flying)
            os.write(fd, packet)
        return None


def main() -> None:
    """Run until standard input ends."""
    first_ns, second_ns, first_address, second_address, tag = sys.argv[1:]
    first = make_end(f"{tag}a", first_ns, first_address, second_address)
    second = make_end(f"{tag}b", second_ns, second_address, first_address)
    wire = Wire(first, second)
    looks = selectors.DefaultSelector()
    for fd in (first, second, 0):
        looks.register(fd, selectors.EVENT_READ)
    print("up", flush=True)
    while True:
        wait_s = wire.deliver()
        for key, _ in looks.select(wait_s):
            if key.fd != 0:
                wire.take(key.fd)
            elif order := sys.stdin.readline():
                wire.obey(order)
                print("done", flush=True)
            else:
                return


if __name__ == "__main__":
    main()
