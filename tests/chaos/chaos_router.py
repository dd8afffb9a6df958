"""A router between three network namespaces: one host behind NAT, one behind a forwarded port.

    launcher 10.78.0.1 ── router ── 192.168.77.2  lan: seen outside as 10.78.0.254 only
                             └───── 10.79.0.2     far: reaches 10.79.0.1:7777 only, which the
                                                  router forwards to the launcher's port

Started by `chaos_hosts`. It makes a TUN device for each namespace and rewrites addresses and
ports packet by packet, as a home router does; whatever belongs to no connection that began
inside is dropped. Only TCP passes. It ends when its standard input does, and then says in how
many packets it could read `WORD`.
"""

import os
import selectors
import struct
import subprocess
import sys

from chaos_wire import PACKET_BYTES, open_tun

LAUNCHER, LAUNCHER_PORT = "10.78.0.1", 1337
NAT_OUTSIDE, FORWARD_OUTSIDE = "10.78.0.254", "10.78.0.253"
LAN, LAN_GATEWAY = "192.168.77.2", "192.168.77.1"
FAR, FAR_GATEWAY, FORWARDED_PORT = "10.79.0.2", "10.79.0.1", 7777

WORD = b"guest-"
"""The names of the hosts begin so."""

TCP = 6
SYN, ACK = 0x02, 0x10


class Packet:
    """An IPv4 packet with TCP in it, whose addresses can be rewritten."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.head = (data[0] & 0x0F) * 4

    @property
    def is_tcp(self) -> bool:
        return self.data[0] >> 4 == 4 and self.data[9] == TCP

    @property
    def source(self) -> tuple[str, int]:
        return dotted(self.data[12:16]), self._port(0)

    @property
    def target(self) -> tuple[str, int]:
        return dotted(self.data[16:20]), self._port(2)

    @property
    def begins(self) -> bool:
        """Whether it asks for a new connection."""
        return self.data[self.head + 13] & (SYN | ACK) == SYN

    def rewrite(self, source: tuple[str, int], target: tuple[str, int]) -> bytes:
        """Return the packet between other ends, its checksums right."""
        for at, (address, port) in ((0, source), (1, target)):
            self.data[12 + 4 * at : 16 + 4 * at] = packed(address)
            struct.pack_into("!H", self.data, self.head + 2 * at, port)
        struct.pack_into("!H", self.data, 10, 0)
        struct.pack_into("!H", self.data, 10, checksum(self.data[: self.head]))
        segment = self.data[self.head :]
        struct.pack_into("!H", segment, 16, 0)
        pseudo = self.data[12:20] + struct.pack("!BBH", 0, TCP, len(segment))
        struct.pack_into("!H", self.data, self.head + 16, checksum(pseudo + segment))
        return bytes(self.data)

    def _port(self, at: int) -> int:
        port: int = struct.unpack_from("!H", self.data, self.head + at)[0]
        return port


class Router:
    """Decides where a packet goes, and as what."""

    def __init__(self) -> None:
        self._begun: set[tuple[str, int]] = set()

    def from_lan(self, packet: Packet) -> bytes | None:
        """A host behind NAT may reach the launcher, as the router."""
        if packet.target[0] != LAUNCHER:
            return None
        return self._out((NAT_OUTSIDE, packet.source[1]), packet.target, packet)

    def from_far(self, packet: Packet) -> bytes | None:
        """A host elsewhere may reach the forwarded port, which is the launcher's."""
        if packet.target != (FAR_GATEWAY, FORWARDED_PORT):
            return None
        source = (FORWARD_OUTSIDE, packet.source[1])
        return self._out(source, (LAUNCHER, LAUNCHER_PORT), packet)

    def from_launcher(self, packet: Packet) -> tuple[str, bytes] | None:
        """An answer goes back where its connection began; nothing else passes."""
        if packet.target not in self._begun:
            return None
        outside, port = packet.target
        if outside == NAT_OUTSIDE:
            return "lan", packet.rewrite(packet.source, (LAN, port))
        return "far", packet.rewrite((FAR_GATEWAY, FORWARDED_PORT), (FAR, port))

    def _out(self, source: tuple[str, int], target: tuple[str, int], packet: Packet) -> bytes:
        if packet.begins:
            self._begun.add(source)
        return packet.rewrite(source, target)


def dotted(address: bytes | bytearray) -> str:
    return ".".join(map(str, address))


def packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))


def checksum(data: bytes | bytearray) -> int:
    """The Internet's (RFC 1071)."""
    even = bytes(data) + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(even) // 2}H", even))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main(launcher: str, lan: str, far: str, prefix: str) -> None:
    """Route until standard input ends."""
    ends = {
        "launcher": (launcher, LAUNCHER, (NAT_OUTSIDE, FORWARD_OUTSIDE)),
        "lan": (lan, LAN, (LAN_GATEWAY, LAUNCHER)),
        "far": (far, FAR, (FAR_GATEWAY,)),
    }
    fds = {}
    for name, (namespace, address, reachable) in ends.items():
        device = f"{prefix}{name[0]}"
        fds[name] = open_tun(device)
        for words in (
            ("link", "set", device, "netns", namespace),
            ("-n", namespace, "addr", "add", f"{address}/32", "dev", device),
            ("-n", namespace, "link", "set", device, "up"),
            ("-n", namespace, "link", "set", "lo", "up"),
            *(("-n", namespace, "route", "add", one, "dev", device) for one in reachable),
        ):
            subprocess.run(["ip", *words], check=True)
    print("up", flush=True)
    readable, router, selector = 0, Router(), selectors.DefaultSelector()
    for name, fd in fds.items():
        selector.register(fd, selectors.EVENT_READ, name)
    selector.register(sys.stdin, selectors.EVENT_READ, "stdin")
    while True:
        for key, _ in selector.select():
            if key.data == "stdin":
                print(readable, flush=True)
                return
            packet = Packet(os.read(key.fd, PACKET_BYTES))
            if not packet.is_tcp:
                continue
            readable += WORD in packet.data
            if key.data == "launcher":
                routed = router.from_launcher(packet)
                if routed is not None:
                    os.write(fds[routed[0]], routed[1])
                continue
            sent = router.from_lan(packet) if key.data == "lan" else router.from_far(packet)
            if sent is not None:
                os.write(fds["launcher"], sent)


if __name__ == "__main__":
    main(*sys.argv[1:])
