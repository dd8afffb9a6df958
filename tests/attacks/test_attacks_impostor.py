"""A launcher that is none: what it says takes no host out of its directory and runs nothing."""

import anyio
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from flodl_core.errors import FlodlError, JobError, RefusedError, TransientJoinError
from flodl_core.ids import Mode, RunId
from flodl_core.messages import SCHEMA_VERSION
from flodl_core.messages.job import Geometry, JobFacts, JobRef
from flodl_core.messages.join import Knock, Offer
from flodl_core.roles.agent import find_job
from flodl_core.roles.host_join import LocalJob, join_world
from flodl_core.telemetry.run_directory import RunDirectory

WORD = "the host looks for its job"
FACTS = JobFacts(
    n_samples=100,
    dataset_sig="d",
    model_sig="m",
    layout_sig="l",
    model_entries=("param|w|float32|(2,)",),
    model_bytes=8,
    geometry=Geometry(params=(), params_numel=0, buffers=(), buffers_numel=0, locals=()),
    devices=("cpu:0",),
    gpus=(),
    torch_variant="none",
    batch_size=4,
    epochs=1,
    has_eval=False,
)


class Impostor:
    """The host's end of a link whose other end says one Offer."""

    def __init__(self, offer):
        self._offer = offer

    async def send(self, message):
        assert isinstance(message, Knock)

    async def receive(self):
        return self._offer


def offer(run_id, job=None):
    return Offer(
        run_id=RunId(run_id),
        mode=Mode.CPU_SYNC,
        job=job or JobRef(kind="recipe", name="synthetic", args={}),
        batch_size=8,
        seed=0,
        wire_dtype="f32",
        schema=SCHEMA_VERSION,
    )


async def ask(run_id):
    """How joining ends: the host prepares for such a run, or it refuses."""

    async def prepare(_):
        raise JobError(WORD)

    with pytest.raises(FlodlError) as caught:
        await join_world(Impostor(offer(run_id)), "blue", prepare=prepare, on_admitted=print)
    return caught.value


@pytest.mark.anyio
@pytest.mark.parametrize(
    "run_id",
    ["", ".", "..", "a/../../../x", "/etc", "0123456789ABCDEF", "0123456789abcde", "0" * 17,
     "0123456789abcde\n", "0123456789abcdef\n", "\x1b[2J0123456789ab", "0123456789abcde\u0661"],
)  # fmt: skip
async def test_a_run_id_that_is_none_is_refused_before_anything_is_made(run_id):
    assert isinstance(await ask(run_id), RefusedError)


@pytest.mark.anyio
async def test_a_run_id_of_a_launcher_is_taken():
    assert (await ask("0123456789abcdef")).happened == WORD


class StoppedLauncher(Impostor):
    """It made its Offer and says nothing more; its kernel keeps the connection."""

    def __init__(self, made):
        super().__init__(made)
        self.said = []

    async def send(self, message):
        self.said.append(message)

    async def receive(self):
        if len(self.said) == 1:
            return await super().receive()
        return await anyio.sleep_forever()


def test_a_launcher_that_is_stopped_behind_its_offer_is_given_up():
    """On a clock that jumps to the next ceiling."""
    link = StoppedLauncher(offer("0123456789abcdef"))

    async def prepare(made):
        return LocalJob(ref=made.job, path=None, facts=FACTS), ("cpu:0",)

    async def join():
        await join_world(link, "blue", prepare=prepare, on_admitted=print)

    with pytest.raises(TransientJoinError, match="said nothing for 30 s"):
        trio.run(join, clock=MockClock(autojump_threshold=0))


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=40))
@example("x/../../../../tmp/evil")
@example("/tmp/evil")
def test_no_run_id_leaves_the_directory_of_all_runs(tmp_path_factory, run_id):
    base = tmp_path_factory.mktemp("base")
    made = RunDirectory.open(base / "runs", "blue-agent", RunId(run_id))
    assert made.path.resolve().parent == (base / "runs").resolve()
    assert list(base.iterdir()) == [base / "runs"]


@pytest.mark.parametrize("name", ["os:system", "subprocess:getoutput", "pkg.train:job"])
def test_a_module_is_taken_from_a_launcher_that_proved_itself_only(name):
    offered = JobRef(kind="module", name=name, args={"command": "reboot"})
    with pytest.raises(RefusedError, match="nothing proves who says so") as caught:
        find_job(offered, None, is_proven=False)
    assert f"--job {name}" in caught.value.fix
    assert find_job(offered, None, is_proven=True).ref.name == name
    assert find_job(offered, name, is_proven=False).ref.name == name


@pytest.mark.parametrize("is_proven", [False, True])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("recipe", "os:system"),
        ("recipe", "../../x"),
        ("recipe", "os.path"),
        ("module", "synthetic"),
        ("module", "..evil:job"),
        ("module", "os"),
        ("file", "train:job"),
        ("spell", "synthetic"),
    ],
)
def test_a_job_of_another_kind_than_its_name_is_refused(kind, name, is_proven):
    with pytest.raises((RefusedError, JobError)):
        find_job(JobRef(kind=kind, name=name, args={}), None, is_proven=is_proven)


def test_a_recipe_needs_no_proof():
    offered = JobRef(kind="recipe", name="synthetic", args={"params": 10})
    assert find_job(offered, None, is_proven=False).ref == offered
