"""When a rank is lost: both signs, or half a second after the first."""

from flodl_core.ids import Rank
from flodl_core.roles.rank_ends_watch import SECOND_SIGN_S, RankEndWatch

R = Rank(3)


def test_both_signs_together_tell_the_loss_once_with_the_exit_as_cause() -> None:
    watch = RankEndWatch()
    assert watch.process_exited(R, "SIGKILL", 10.0) is None
    assert watch.channel_ended(R, 10.1) == "SIGKILL"
    assert watch.channel_ended(R, 10.2) is None
    assert watch.overdue(100.0) == []


def test_the_channel_may_end_first() -> None:
    watch = RankEndWatch()
    assert watch.channel_ended(R, 1.0) is None
    assert watch.process_exited(R, "exit code 1", 1.2) == "exit code 1"


def test_one_sign_alone_is_enough_after_half_a_second() -> None:
    watch = RankEndWatch()
    watch.process_exited(R, "exit code 9", 5.0)
    assert watch.deadline() == 5.0 + SECOND_SIGN_S
    assert watch.overdue(5.0 + SECOND_SIGN_S - 0.01) == []
    assert watch.overdue(5.0 + SECOND_SIGN_S) == [(R, "exit code 9")]
    assert watch.deadline() is None


def test_a_rank_that_is_lost_for_another_reason_is_not_told_again() -> None:
    watch = RankEndWatch()
    assert watch.lose(R)
    assert not watch.lose(R)
    assert watch.process_exited(R, "SIGKILL", 1.0) is None
    assert watch.channel_ended(R, 1.1) is None
    assert watch.overdue(9.0) == []
