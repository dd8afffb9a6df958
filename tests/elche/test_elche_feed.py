"""The feed: one scale for the whole cohort, and what stands in for a missing sample."""

import pytest
from elche_world import row
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.feed import MarginalMemory, select_feed
from flodl_core.elche.settings import TimingScale
from flodl_core.elche.window_ledger import RankWindow, WindowLedger
from flodl_core.ids import Rank


def window(rank: int, *batches: tuple[float, float]) -> RankWindow:
    """Batches as (step, delivered)."""
    ledger = WindowLedger()
    for step_ms, delivered_ms in batches:
        ledger.record_batch(step_ms, 0.0, delivered_ms)
    return ledger.window(Rank(rank))


def fed(*rows: RankWindow, memory: MarginalMemory | None = None):
    return (memory or MarginalMemory()).recall(rows)


def test_a_coherent_window_feeds_what_was_delivered():
    feed = select_feed(fed(window(0, (5, 30), (5, 8)), window(1, (50, 60), (50, 54))))
    assert feed is not None
    assert feed.scale is TimingScale.DELIVERED
    assert feed.samples_ms == {0: 8.0, 1: 54.0}
    assert feed.fill_ms == {0: 22.0, 1: 6.0}


def test_one_mover_without_a_delivered_sample_puts_all_on_the_compute_scale():
    feed = select_feed(fed(window(0, (5, 30), (5, 8)), window(1, (50, 60))))
    assert feed is not None
    assert feed.scale is TimingScale.COMPUTE
    assert feed.samples_ms == {0: 5.0, 1: 50.0}


def test_a_rank_that_did_not_move_spoils_nothing_and_feeds_nothing():
    feed = select_feed(fed(window(0, (5, 30), (5, 8)), window(1)))
    assert feed is not None
    assert feed.scale is TimingScale.DELIVERED
    assert feed.samples_ms == {0: 8.0}


def test_sync_rides_on_the_compute_scale():
    rows = fed(window(0, (5, 30), (5, 8)), window(1, (50, 60), (50, 54)))
    feed = select_feed(rows, TimingScale.COMPUTE)
    assert feed is not None
    assert feed.scale is TimingScale.COMPUTE
    assert feed.samples_ms == {0: 5.0, 1: 50.0}


def test_a_window_without_any_time_feeds_nothing():
    assert select_feed(fed(window(0), window(1))) is None
    assert select_feed(fed(window(0, (0, 0), (0, 0)))) is None
    assert select_feed(()) is None


def test_the_last_delivered_sample_stands_in_for_twenty_windows():
    memory = MarginalMemory()
    fed(window(0, (5, 30), (5, 8)), memory=memory)
    for _ in range(20):
        feed = select_feed(fed(window(0, (5, 30)), memory=memory))
        assert feed is not None
        assert feed.samples_ms == {0: 8.0}
        assert feed.scale is TimingScale.DELIVERED
    feed = select_feed(fed(window(0, (5, 30)), memory=memory))
    assert feed is not None
    assert feed.scale is TimingScale.COMPUTE


def test_what_stands_in_is_not_less_than_the_step_just_measured():
    memory = MarginalMemory()
    fed(window(0, (60, 70), (60, 61)), memory=memory)
    feed = select_feed(fed(window(0, (600, 610)), memory=memory))
    assert feed is not None
    assert feed.samples_ms == {0: 600.0}


def test_a_new_sample_renews_the_memory():
    memory = MarginalMemory()
    fed(window(0, (5, 30), (5, 8)), memory=memory)
    for _ in range(19):
        fed(memory=memory)
    fed(window(0, (5, 30), (5, 9)), memory=memory)
    for _ in range(20):
        rows = fed(window(0, (5, 30)), memory=memory)
    assert rows[0].remembered_ms == 9.0


def test_a_lost_rank_is_forgotten():
    memory = MarginalMemory()
    fed(window(0, (5, 30), (5, 8)), memory=memory)
    memory.forget(Rank(0))
    memory.forget(Rank(7))
    assert fed(window(0, (5, 30)), memory=memory)[0].remembered_ms is None


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 100)), max_size=6),
    st.sampled_from(TimingScale),
)
def test_all_samples_of_a_feed_are_on_one_scale_and_of_movers(ranks, scale):
    rows = fed(*(row(rank, batches, ms) for rank, (batches, ms) in enumerate(ranks)))
    feed = select_feed(rows, scale)
    movers = {rank for rank, (batches, _) in enumerate(ranks) if batches}
    if feed is None:
        assert all(ms == 0 for batches, ms in ranks if batches)
        return
    assert set(feed.samples_ms) <= movers
    assert all(sample > 0 for sample in feed.samples_ms.values())
    for fed_row in rows:
        rank = fed_row.window.rank
        expected = (
            fed_row.delivered_ms if feed.scale is TimingScale.DELIVERED else fed_row.compute_ms
        )
        assert feed.samples_ms.get(rank) == (expected if rank in movers else None)
