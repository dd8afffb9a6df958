"""What a placed host is told of the run: the launcher's words reach its `flodl join`."""

import os
from dataclasses import dataclass

import anyio

from flodl_core.config.workers import WorkerConfig
from flodl_core.ids import HostName
from flodl_core.placement.dialog import HostReport, JoinOrder, line_of, read_line
from flodl_core.placement.placed_hosts import PlacedHosts, PlaceFacts
from flodl_core.placement.preflight import LauncherFacts
from flodl_core.placement.roads import Approach, PlacedHost

REPORT = HostReport(
    host="blue",
    machine="blue",
    flodl="1",
    python="3.11",
    torch="2.6",
    devices=("cuda:0",),
    gpus=("H200",),
    driver=None,
    memory_free_bytes=1 << 40,
    disk_free_bytes=1 << 40,
    job_sha256=None,
    utc_s=0.0,
)


@dataclass
class ShellRoad:
    """A road that reports and then keeps the order to join."""

    place: object
    name = "shell"
    attempts = 1

    def approach(self, _host):
        words = f"read order; cat {self.place}/report; head -n 1 > {self.place}/joining"
        return Approach(command=("sh", "-c", words), controller="red:1337")

    def fix(self, _host):
        return "mend it"


def test_a_placed_host_is_told_what_its_launcher_was_told_for_all(tmp_path):
    (tmp_path / "report").write_bytes(line_of(REPORT))
    words = ("--inspect-timeout-s", "600", "--net-timeout-scale", "3", "--verbose")
    hosts = PlacedHosts(
        ShellRoad(tmp_path),
        [PlacedHost(label="blue", worker=WorkerConfig(host="blue", micro_batch=4))],
        facts=PlaceFacts(
            word="w",
            job="charlm",
            is_file=False,
            launcher=LauncherFacts(flodl="1", torch="2.6", job_sha256=None),
            words=words,
            timeout_s=30.0,
            look_s=1.0,
        ),
        env=dict(os.environ),
        output_path=tmp_path.joinpath,
    )
    ended = []

    async def until_joined(_host):
        return True

    async def talk():
        (verdict,) = await hosts.preflight()
        assert verdict.is_fit, verdict
        async with anyio.create_task_group() as tasks:
            await hosts.start(
                token="00" * 16,
                until_joined=until_joined,
                on_ended=lambda *how: ended.append(how),
                tasks=tasks,
            )
        await hosts.finish(5.0)

    anyio.run(talk)
    order = read_line((tmp_path / "joining").read_bytes(), JoinOrder)
    assert order.words[-len(words) :] == words
    assert order.words[-len(words) - 2 : -len(words)] == ("--micro-batch", "4")
    assert [host for host, *_ in ended] == [HostName("blue")]
