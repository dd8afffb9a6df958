from telemetry_documents import (
    alert,
    bundle_state,
    document,
    epoch_state,
    in_training,
    member,
    rank_state,
    wait,
)

from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.changes import (
    AlertRaised,
    BundleSaved,
    ChangeReader,
    EpochEnded,
    EpochEvaluated,
    JoinRefused,
    MemberGone,
    MemberJoined,
    PhaseChanged,
    RankChanged,
    RunShown,
    WaitShown,
)


def after(*documents):
    """The changes that the last of these documents brings."""
    reader = ChangeReader()
    changes = []
    for one in documents:
        changes = reader.read(one)
    return changes


def test_the_first_document_tells_the_run_and_its_phase():
    first = document()
    assert after(first) == [RunShown(first), PhaseChanged(ClusterPhase.WAITING, first)]


def test_an_unchanged_document_tells_nothing():
    assert after(in_training(10.0), in_training(11.0)) == []


def test_members_are_told_when_they_join_are_renumbered_and_leave():
    none = document()
    red, blue = member("red", (0, 1)), member("blue", (2, 3))
    both = document(members=(red, blue))
    assert after(none, both) == [MemberJoined(red), MemberJoined(blue)]
    moved = member("blue", (0, 1))
    assert after(both, document(members=(moved,))) == [MemberGone(red), MemberJoined(moved)]


def test_refusals_are_told_with_their_number_and_the_last_reason():
    told = after(document(), document(refusals=3, last_refusal="wrong token"))
    assert told == [JoinRefused(3, "wrong token")]
    assert after(document(refusals=3), document(refusals=3)) == []


def test_a_phase_is_told_when_it_is_entered():
    then = in_training()
    assert after(document(), then)[-1] == PhaseChanged(ClusterPhase.TRAINING, then)


def test_an_epoch_is_told_once_and_its_metric_when_it_comes():
    bare, scored = epoch_state(0), epoch_state(0, metric=1.9, metric_name="nats/char")
    assert after(in_training(), in_training(epochs=(bare,))) == [EpochEnded(bare, 3)]
    assert after(in_training(epochs=(bare,)), in_training(epochs=(scored,))) == [
        EpochEvaluated(scored, 3)
    ]
    assert after(in_training(), in_training(epochs=(scored,))) == [EpochEnded(scored, 3)]
    assert after(in_training(epochs=(scored,)), in_training(epochs=(scored,))) == []


def test_a_bounded_list_of_epochs_that_dropped_its_oldest_tells_only_the_new():
    old = tuple(epoch_state(number) for number in range(3))
    new = tuple(epoch_state(number) for number in range(1, 4))
    assert after(in_training(epochs=old), in_training(epochs=new)) == [EpochEnded(new[-1], 3)]


def test_a_rank_that_is_lost_is_told_once():
    lost = rank_state(3, "lost")
    ranks = (rank_state(0), lost)
    assert after(in_training(), in_training(ranks=ranks)) == [RankChanged(lost)]
    assert after(in_training(ranks=ranks), in_training(ranks=ranks)) == []


def test_an_alert_is_told_when_it_is_emitted_and_again_with_a_new_count():
    one, again = alert(), alert(count=3, at="2031-01-02T03:05:20Z")
    assert after(in_training(), in_training(alerts=(one,))) == [AlertRaised(one)]
    assert after(in_training(alerts=(one,)), in_training(alerts=(one, again))) == [
        AlertRaised(again)
    ]


def test_a_wait_is_told_when_it_appears_every_half_minute_and_when_it_begins_anew():
    reader = ChangeReader()
    reader.read(in_training())
    ages = [5.5, 6.5, 34.0, 35.5, 36.0, 7.0]
    told = [bool(reader.read(in_training(waits=(wait(age),)))) for age in ages]
    assert told == [True, False, False, True, False, True]
    assert reader.read(in_training()) == []
    assert reader.read(in_training(waits=(wait(8.0),))) == [WaitShown(wait(8.0))]


def test_a_newer_bundle_is_told():
    old, new = in_training(checkpoint=bundle_state(10)), in_training(checkpoint=bundle_state(20))
    assert after(in_training(), old) == [BundleSaved("ck/consensus", 10)]
    assert after(old, new) == [BundleSaved("ck/consensus", 20)]
    assert after(new, new) == []
