"""What a message costs to prove, and to hide: tagged with HMAC-SHA256, sealed with AES-128-GCM.

    python tests/bench/frame_cost.py

Prints microseconds for sealing and opening one message of each size, the best of seven rounds;
the two sorts take turns, so that a busy machine is unkind to both.
"""

import os
import time

from flodl_core.wire.frame import FrameOpener, FrameSealer

SIZES = ((64, 20_000), (1_024, 20_000), (65_536, 2_000), (1_048_576, 100))
ROUNDS = 7
KEYS = {"tagged": None, "sealed": bytes(16)}


def cost_us(nbytes: int, count: int, gcm_key: bytes | None) -> float:
    """Of one message, sealed and opened."""
    sealer = FrameSealer(bytes(32), gcm_key=gcm_key)
    opener = FrameOpener(bytes(32), gcm_key=gcm_key)
    payload = os.urandom(nbytes)
    began = time.perf_counter()
    for _ in range(count):
        opener.feed_untrusted(sealer.seal(63, payload))
    return (time.perf_counter() - began) / count * 1e6


def main() -> None:
    """Print the table."""
    print(f"{'bytes':>9}  {'tagged, us':>10}  {'sealed, us':>10}")
    for nbytes, count in SIZES:
        best = dict.fromkeys(KEYS, float("inf"))
        for _ in range(ROUNDS):
            for name, key in KEYS.items():
                best[name] = min(best[name], cost_us(nbytes, count, key))
        print(f"{nbytes:>9}  {best['tagged']:>10.1f}  {best['sealed']:>10.1f}")


if __name__ == "__main__":
    main()
