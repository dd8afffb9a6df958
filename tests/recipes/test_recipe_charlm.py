import math
from pydoc_data.topics import topics

import pytest
import torch
from recipe_runs import score, train

from flodl_core.errors import JobError
from flodl_core.recipes import charlm
from flodl_core.recipes.charlm_text import Windows, load_corpus


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_text_is_split_so_that_no_paragraph_stands_on_both_sides():
    corpus = load_corpus()
    sides = [
        {part.strip() for part in corpus.decode(ids.tolist()).split("\n\n")} - {""}
        for ids in (corpus.train_ids, corpus.validation_ids)
    ]
    assert not sides[0] & sides[1]
    total = len(corpus.train_ids) + len(corpus.validation_ids)
    assert total == len("\n\n".join(topics[name] for name in sorted(topics))) - 2
    assert 0.03 < len(corpus.validation_ids) / total < 0.12


def test_ids_stand_for_the_symbols_of_the_text():
    corpus = load_corpus()
    assert list(corpus.symbols) == sorted(set("".join(topics.values())) | {"\n"})
    assert corpus.decode(corpus.encode("The \x00for")) == "The for"
    assert int(corpus.train_ids.max()) < len(corpus.symbols)


def test_a_window_is_followed_by_its_targets_and_windows_cover_the_text():
    windows = Windows(torch.arange(50), context=8, stride=3)
    assert len(windows) == 14
    inputs, targets = windows[0]
    assert inputs.tolist() == list(range(8))
    assert targets.tolist() == list(range(1, 9))
    assert windows[13][1].tolist() == list(range(40, 48))
    with pytest.raises(IndexError):
        windows[14]
    assert len(Windows(torch.arange(8), context=8, stride=3)) == 0
    assert len(Windows(torch.arange(9), context=8, stride=3)) == 1


def test_the_model_has_the_size_it_says_and_ties_its_embeddings():
    model = charlm.job().model()
    assert 200_000 <= sum(one.numel() for one in model.parameters()) <= 400_000
    assert model.head.weight is model.embed.weight


def test_no_character_sees_the_ones_after_it():
    torch.manual_seed(0)
    model = charlm.job().model().eval()
    ids = torch.randint(0, 90, (1, 20))
    changed = ids.clone()
    changed[0, 12] = (changed[0, 12] + 1) % 90
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 12:], after[:, 12:])


def test_an_untrained_model_knows_nothing():
    torch.manual_seed(0)
    job = charlm.job()
    assert score(job, job.model()) == pytest.approx(math.log(len(load_corpus().symbols)), abs=0.25)


def test_a_run_beyond_the_schedule_is_told_once_how_to_lengthen_it(caplog):
    job = charlm.job(epochs=1)
    steps = len(job.dataset()) // job.batch_size
    for step in range(int(1.1 * steps) + 1):
        job.scheduler(step)
    assert not caplog.records, (
        "a run of its own epochs is told nothing, nor a rank that counts ahead"
    )
    for step in range(2 * steps, 2 * steps + 9):
        assert job.scheduler(step) == pytest.approx(0.02)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "give --job-arg epochs=N instead of --epochs N" in caplog.text
    longer = charlm.job(epochs=10)
    assert longer.epochs == 10
    assert longer.scheduler(steps) > 0.9


def test_the_learning_rate_warms_up_then_falls_to_almost_nothing_and_stays():
    job = charlm.job()
    steps = job.epochs * (len(job.dataset()) // job.batch_size)
    factors = [job.scheduler(step) for step in range(steps)]
    peak = factors.index(max(factors))
    assert max(factors) == pytest.approx(1.0, abs=0.01)
    assert 0.03 < peak / steps < 0.08
    assert factors[:peak] == sorted(factors[:peak])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert factors[0] > 0
    assert job.scheduler(10 * steps) == pytest.approx(0.02)


def test_the_same_model_writes_the_same_text_and_leaves_chance_alone():
    torch.manual_seed(3)
    model = charlm.job(width=32, layers=1).model().eval()
    before = torch.get_rng_state()
    text = charlm.write_text(model, characters=50)
    assert text.startswith("The ")
    assert len(text) == 54
    assert charlm.write_text(model, characters=50) == text
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_two_ranks_learn_together_in_a_few_windows():
    job = charlm.job(width=32, layers=1, batch_size=16, epochs=1, lr=1e-2)
    contexts, _ = train(job, ranks=2, windows=80)
    assert score(job, contexts[0].model) < 3.0
    assert job.report(contexts[0].model).startswith("The ")


@pytest.mark.slow
def test_a_micro_batch_changes_the_memory_and_not_the_step():
    job = charlm.job(width=32, layers=1, batch_size=8)
    (whole,), _ = train(job, ranks=1, windows=3)
    (cut,), _ = train(job, ranks=1, windows=3, micro_batch=3)
    for one, other in zip(whole.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"width": 40}, "width"), ({"layers": 0}, "layers"), ({"context": 0}, "context")],
)
def test_an_option_that_cannot_be_used_is_named(options, named):
    with pytest.raises(JobError, match=f"charlm: {named} is"):
        charlm.job(**options)
