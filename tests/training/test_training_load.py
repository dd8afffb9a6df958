"""Naming, finding and importing a job; what an inspection says of it."""

import hashlib
import json
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch import nn

from flodl_core.errors import JobError, LayoutError, NonFiniteError
from flodl_core.messages.job import JobRef
from flodl_core.messages.timing import Exiting
from flodl_core.training.inspection import describe_job, facts_json, inspect_job
from flodl_core.training.job import TrainJob
from flodl_core.training.job_name import name_job
from flodl_core.training.load import describe_error, load_job
from flodl_core.training.sayable import MAX_TOLD_BYTES
from flodl_core.training.signatures import dataset_signature
from flodl_core.wire.codec import encode

SOURCE = """
    import torch
    from flodl_core import TrainJob

    class Data:
        def __len__(self):
            return 10
        def __getitem__(self, index):
            return torch.tensor([float(index)]), index

    def make(width: int = 3, kind: str = "plain"):
        return TrainJob(
            model=lambda: torch.nn.Linear(1, width),
            optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
            dataset=Data,
            step=lambda ctx, batch: 0.0,
            batch_size=2,
            epochs=4,
        )

    job = make()
    number = 3
"""


@pytest.fixture
def write_job(tmp_path):
    before, modules = list(sys.path), set(sys.modules)

    def write(stem, source=SOURCE):
        path = tmp_path / f"{stem}.py"
        path.write_text(textwrap.dedent(source))
        return path

    yield write
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def load_text(text, **args):
    named = name_job(text, args)
    return load_job(named.ref, path=named.path)


def complaint(text, **args):
    with pytest.raises(JobError) as caught:
        load_text(text, **args)
    assert "\n" not in caught.value.happened
    return str(caught.value)


def test_the_three_forms_of_a_name(write_job):
    path = write_job("form_job")
    assert name_job("charlm", {}).ref == JobRef(kind="recipe", name="charlm", args={})
    assert name_job("pkg.mod:thing", {"a": 1}).ref == JobRef(
        kind="module", name="pkg.mod:thing", args={"a": 1}
    )
    named = name_job(f"{path}:make", {})
    assert (named.ref.kind, named.ref.name, named.path) == ("file", "form_job:make", path)
    assert named.ref.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert name_job(str(path), {}).ref.name == "form_job:job"


@pytest.mark.parametrize("text", ["", "a:b:c d", "no/such.py:job", "Bad Name", ":job", "a-b:job"])
def test_a_text_that_names_nothing_is_refused(text):
    with pytest.raises(JobError):
        name_job(text, {})


def test_a_file_is_imported_by_its_stem_with_its_directory_first(write_job):
    path = write_job("stem_job")
    job = load_text(f"{path}:job")
    assert isinstance(job, TrainJob)
    assert sys.path[0] == str(path.parent)
    assert sys.modules["stem_job"].job is job
    assert load_text(f"{path}:job") is job


def test_a_function_is_given_the_options(write_job):
    path = write_job("options_job")
    assert load_text(f"{path}:make", width=7).model().out_features == 7
    said = complaint(f"{path}:make", widht=7)
    assert "widht" in said
    assert "its options are: width, kind" in said


def test_a_job_that_is_no_function_takes_no_options(write_job):
    assert "takes no options" in complaint(f"{write_job('plain_job')}:job", width=2)


@pytest.mark.parametrize("stem", ["json", "numpy", "torch", "random"])
def test_a_file_with_the_name_of_another_module_is_refused_by_name(write_job, stem):
    said = complaint(f"{write_job(stem)}:job")
    assert f"'{stem}'" in said
    assert "rename" in said


def test_a_loaded_module_of_another_file_is_never_taken_for_the_job(write_job, tmp_path):
    load_text(f"{write_job('twice_job')}:job")
    other = tmp_path / "elsewhere" / "twice_job.py"
    other.parent.mkdir()
    other.write_text(textwrap.dedent(SOURCE))
    assert "'twice_job'" in complaint(f"{other}:job")


@pytest.mark.parametrize(
    ("source", "attribute", "said"),
    [
        ("import no_such_package_here", "job", "needs 'no_such_package_here'"),
        ("x = 1 / 0", "job", "ZeroDivisionError: division by zero (broken_job.py:1)"),
        ("def f(:", "job", "SyntaxError"),
        ("raise SystemExit(3)", "job", "SystemExit: 3"),
        ("job = 3", "job", "is an int, not a TrainJob"),
        ("job = lambda: 3", "job", "returned an int, not a TrainJob"),
        ("def job(): raise OSError('no disk')", "job", "OSError: no disk (broken_job.py:1)"),
        ("x = 1", "job", "has no attribute 'job'"),
    ],
)
def test_each_way_to_break_a_job_is_one_line(write_job, source, attribute, said):
    assert said in complaint(f"{write_job('broken_job', source)}:{attribute}")


def test_unknown_modules_and_recipes_are_named():
    assert "'no.such' is not installed" in complaint("no.such:job")
    assert "'nosuchrecipe'" in complaint("nosuchrecipe")
    assert isinstance(load_text("synthetic"), TrainJob)


def test_a_file_of_another_name_is_not_taken_for_the_runs(write_job):
    path = write_job("mine_job")
    with pytest.raises(JobError, match=r"the run's job is theirs\.py"):
        load_job(JobRef(kind="file", name="theirs:job", args={}), path=path)
    with pytest.raises(JobError, match="--job PATH"):
        load_job(JobRef(kind="file", name="theirs:job", args={}))


def test_inspection_tells_everything_and_disturbs_no_generator(write_job):
    named = name_job(f"{write_job('facts_job')}:make", {"width": 4})
    state = torch.get_rng_state()
    facts = inspect_job(named.ref, path=named.path)
    assert torch.equal(torch.get_rng_state(), state)
    assert (facts.n_samples, facts.batch_size, facts.epochs, facts.has_eval) == (10, 2, 4, False)
    assert facts.model_entries == ("param|weight|float32|4x1", "param|bias|float32|4")
    expected = hashlib.sha256(b"param|weight|float32|4x1\nparam|bias|float32|4").hexdigest()
    assert facts.model_sig == expected
    assert facts.model_bytes == 4 * 32
    assert facts.devices
    assert facts == inspect_job(named.ref, path=named.path)
    assert json.loads(facts_json(facts))["geometry"]["params"][1]["offset"] == 16


def job_with(**changes):
    return TrainJob(
        **{
            "model": lambda: nn.Linear(1, 1),
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
            "dataset": lambda: [torch.zeros(1)],
            "step": lambda ctx, batch: 0.0,
            **changes,
        }
    )


def broken():
    raise KeyError("weights")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": broken}, "building the model failed: KeyError: 'weights'"),
        ({"model": lambda: 3}, "model() returned an int"),
        ({"optimizer": lambda model: broken()}, "building the optimizer failed: KeyError"),
        ({"optimizer": lambda model: None}, "optimizer() returned a NoneType"),
        ({"dataset": broken}, "building the data failed: KeyError"),
        ({"dataset": lambda: []}, "holds 0 samples"),
        ({"dataset": lambda: 3}, "building the data failed: TypeError"),
    ],
)
def test_a_job_whose_parts_fail_is_told_at_inspection(changes, said):
    with pytest.raises(JobError) as caught:
        describe_job(job_with(**changes), name="mine")
    assert said in str(caught.value)
    assert "'mine'" in str(caught.value)


def test_a_model_that_is_not_finite_at_start_is_refused_by_name():
    def model():
        module = nn.Linear(1, 1)
        module.register_buffer("causal", torch.tensor([0.0, float("-inf")]))
        return module

    with pytest.raises(NonFiniteError, match="'causal'"):
        describe_job(job_with(model=model), name="mine")


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (torch.full((2, 2), torch.finfo(torch.float32).min), "a value of size 3.4e+38"),
        (torch.tensor([1.0, 1e300], dtype=torch.float64), "values that are not finite"),
        (torch.complex(torch.ones(1), torch.tensor([2e38])), "a value of size 2e+38"),
        (torch.tensor([float("nan")]).to(torch.float8_e4m3fn), "values that are not finite"),
    ],
)
def test_what_several_ranks_could_not_sum_is_refused_by_name_before_the_window(held, said):
    def model():
        module = nn.Linear(1, 1)
        module.register_buffer("causal", held)
        return module

    with pytest.raises(NonFiniteError) as caught:
        describe_job(job_with(model=model), name="mine")
    assert caught.value.happened.startswith(f"buffer 'causal' holds {said}")
    assert "persistent=False" in caught.value.fix


def test_a_float8_buffer_and_a_large_value_that_can_be_summed_are_taken():
    def model():
        module = nn.Linear(1, 1)
        module.register_buffer("small", torch.ones(2).to(torch.float8_e4m3fn))
        module.register_buffer("large", torch.full((2,), -1e30))
        return module

    assert describe_job(job_with(model=model), name="mine").geometry.buffers_numel


def test_a_lazy_model_is_refused_at_inspection():
    with pytest.raises(LayoutError, match="'weight'"):
        describe_job(job_with(model=lambda: nn.LazyLinear(2)), name="mine")


def test_layout_sig_tells_strides_apart_and_model_sig_does_not():
    def conv(*, last=False, frozen=False):
        module = nn.Conv2d(2, 2, 3)
        module.weight.requires_grad_(not frozen)
        return module.to(memory_format=torch.channels_last) if last else module

    plain, last, frozen = (
        describe_job(job_with(model=lambda k=k: conv(**k)), name="mine")
        for k in ({}, {"last": True}, {"frozen": True})
    )
    assert plain.model_sig == last.model_sig == frozen.model_sig
    assert len({plain.layout_sig, last.layout_sig, frozen.layout_sig}) == 3
    assert plain.geometry == last.geometry


class Samples:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        return item() if callable(item) else item


BASE = [(torch.ones(2), 1, "a"), {"x": np.arange(3)}, [1.5, None, b"z"]]


@pytest.mark.parametrize(
    ("at", "item"),
    [
        (0, (torch.ones(2), 2, "a")),
        (0, (torch.zeros(2), 1, "a")),
        (0, (torch.ones(2).double(), 1, "a")),
        (0, [torch.ones(2), 1, "a"]),
        (1, {"x": np.arange(3.0)}),
        (1, {"y": np.arange(3)}),
        (2, [1.5, None, b"y"]),
    ],
)
def test_another_item_is_another_dataset(at, item):
    changed = [*BASE]
    changed[at] = item
    assert dataset_signature(Samples(changed), None) != dataset_signature(Samples(BASE), None)


def test_length_type_and_version_are_part_of_the_signature():
    signature = dataset_signature(Samples(BASE), None)
    assert dataset_signature(Samples([*BASE]), None) == signature
    assert dataset_signature(Samples([*BASE]), "2") != signature
    assert dataset_signature(Samples([BASE[0], BASE[1], BASE[1], BASE[2]]), None) != signature

    class Other(Samples):
        pass

    assert dataset_signature(Other(BASE), None) != signature


def test_an_item_augmented_at_random_does_not_count():
    noisy = [lambda: torch.rand(3), lambda: np.random.rand(2), lambda: torch.rand(1)]
    state = np.random.get_state()[1].tolist()
    torch.manual_seed(1)
    first = dataset_signature(Samples(noisy), None)
    torch.manual_seed(2)
    assert dataset_signature(Samples(noisy), None) == first
    assert np.random.get_state()[1].tolist() == state


def half_of_the_points():
    order = list(range(100))
    random.shuffle(order)
    return Samples([torch.tensor(float(index)) for index in order[:50]])


def test_data_that_are_split_by_chance_have_one_signature_in_every_process():
    found = set()
    for state in (1, 2):  # of a generator that other code has used before
        random.seed(state)
        found.add(describe_job(job_with(dataset=half_of_the_points), name="mine").dataset_sig)
    assert len(found) == 1


def captions(*texts):
    """Return an array of texts that lie elsewhere at each call."""
    return np.array(["".join([*text]) for text in texts], dtype=object)


def test_an_array_of_objects_counts_by_what_lies_in_it():
    kinds = np.dtype([("text", object), ("number", "i4")])

    def signature(*texts):
        rows = np.array([(text, 1) for text in captions(*texts)], dtype=kinds)
        return dataset_signature(Samples([captions(*texts), rows, rows[0]]), None)

    assert signature("a cat", "a dog") == signature("a cat", "a dog")
    assert signature("a cat", "a dog") != signature("a cat", "a cow")


def spectrum(value):
    return torch.fft.rfft(torch.arange(8.0) * value).conj()


@pytest.mark.parametrize(
    "make",
    [
        spectrum,
        lambda value: spectrum(value).imag,
        lambda value: (torch.eye(3) * value).to_sparse(),
        lambda value: (torch.eye(4) * value).to_sparse_csr(),
        lambda value: (torch.eye(4) * value).to_sparse_bsc((2, 2)),
        lambda value: torch.nested.nested_tensor([torch.ones(2), torch.ones(3) * value]),
        lambda value: torch.quantize_per_tensor(torch.ones(3) * value, 0.1, 0, torch.qint8),
    ],
    ids=["conj", "neg", "sparse", "csr", "bsc", "nested", "quantized"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_of_every_kind_counts_by_its_values(make):
    signatures = [dataset_signature(Samples([make(value)]), None) for value in (1, 1, 2)]
    assert signatures[0] == signatures[1] != signatures[2]


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (ValueError("cannot read a\udc80.png"), r"ValueError: cannot read a\udc80.png"),
        (ValueError("é" * 20_000_000), "ValueError: éé"),
        (JobError("no \udc80", fix="x" * 200_000), r"no \udc80; xxx"),
        (Silent(), "Silent: its text failed with RuntimeError"),
    ],
    ids=["surrogate", "huge", "ours", "silent"],
)
def test_a_cause_can_be_sent_whatever_its_text_is(error, begins):
    error.add_note("reading sample 3")
    line = describe_error(error)
    assert line.startswith(begins)
    assert line.endswith("reading sample 3"), "the end tells where"
    assert len(encode(Exiting(rank=0, error=line))[1]) < 2 * MAX_TOLD_BYTES


def test_an_error_inside_torch_is_placed_at_the_jobs_own_line(write_job):
    source = """
        import torch
        def job():
            return torch.zeros(2) + torch.zeros(3)
    """
    assert "(torch_job.py:4)" in complaint(f"{write_job('torch_job', source)}:job")


@pytest.mark.slow
@pytest.mark.processes
def test_naming_a_job_and_the_channel_load_no_torch():
    code = (
        "import sys, flodl_core.training.job_name, flodl_core.training.channel; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
