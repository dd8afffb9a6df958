"""How a run ends: stop, stall, failure, or having done everything.

What it is: the three last stages. CLOSING saves the last commit: the ranks are asked
for what only they have, then the root's values are written. LEAVING waits for the ranks'
farewell, bounded. ENDED says so once.
What it is not: the decision that training is over; `advance` takes that.
Who drives it: every part that meets an end, and the ticks of `coordinator.tick`.
"""

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.coordinator.cycle import CyclePhase
from flodl_core.coordinator.effects import RunFinished, Severity
from flodl_core.coordinator.events import SaveFinished, StopKind, StopRequested
from flodl_core.coordinator.save_steps import ask_for_save, give_up_asking, make_final, write_bundle
from flodl_core.coordinator.saves import SavePhase, SavePurpose
from flodl_core.coordinator.state import Closing, RunStage, SchedulerState, StopOrder
from flodl_core.ids import ExitCode, SaveReason
from flodl_core.messages.control import Shutdown, ShutdownWithSave
from flodl_core.units import Seconds

_ROUND_WAIT_S: Seconds = 5.0
_RETRY_WAIT_S: Seconds = 1.0
_MOST_RETRIES = 2

_SAVED_CODES = (ExitCode.DONE, ExitCode.STOPPED_SAVED, ExitCode.INTERRUPTED_SAVED)
"""Exit codes that promise a bundle; without one they become NOT_SAVED."""


def request_stop(state: SchedulerState, request: StopRequested, now: Seconds) -> None:
    """Take an operator's or a signal's wish to end the run.

    It takes the place of a stop of the run's own, which has all the time it needs.
    """
    if state.stage is RunStage.ENDED:
        state.note("stop_after_end", who=request.who)
    elif request.kind is StopKind.NOW:
        _stop_now(state, request)
    elif state.stop is not None and state.stop.is_asked:
        state.note("stop_already_requested", who=request.who)
    else:
        state.stop = StopOrder(request=request, since=now)
        grace = state.settings.stop_grace_s
        state.announce(
            "stop_requested",
            f"{request.who} asked to stop: {state.window_end_words}, then saving "
            f"(within {grace:g} s)",
            who=request.who,
        )
        if state.stage is RunStage.RENDEZVOUS:
            give_up(state, "stopped", f"stopped by {request.who} before anything was trained")


def _stop_now(state: SchedulerState, request: StopRequested) -> None:
    """End at once; what is saved stays so, and ranks that have yet to leave are left behind."""
    closing = state.closing
    is_saved = closing is not None and closing.save_error is None
    if state.stage is RunStage.LEAVING and is_saved:
        leave_behind(state)
    else:
        finish(state, request.exit_code, "stopped", f"stopped at once by {request.who}")


def give_up(state: SchedulerState, label: str, detail: str) -> None:
    """End a run that has nothing to save: no consensus was ever committed.

    Its code is that of a stop if somebody asked for one; a stop of the run's own is in vain.
    """
    stop = state.stop
    code = stop.request.exit_code if stop is not None and stop.is_asked else ExitCode.FAILED
    state.send_alive(Shutdown())
    finish(state, code, label, detail)


def close_for_stop(state: SchedulerState, now: Seconds, *, ask: bool = True) -> None:
    """Save and leave because somebody asked to stop."""
    assert state.stop is not None
    request, own = state.stop.request, state.stop.detail
    begin_closing(
        state,
        Closing(
            exit_code=request.exit_code,
            save_reason=state.stop.save_reason,
            label=state.stop.save_reason.value if own else "stopped",
            detail=_word_own_stop(state) if own else f"stopped by {request.who} and saved",
            since=now,
            ask=ask,
        ),
    )


def _word_own_stop(state: SchedulerState) -> str:
    """Why the run stopped by itself, and where that began."""
    assert state.stop is not None
    return f"{state.stop.detail}; saved; first cause: {state.first_cause}"


def close_done(state: SchedulerState, now: Seconds) -> None:
    """Save and leave because every sample of every pass is accounted for.

    A run of which every sample was dropped has trained nothing, and says so.
    """
    trained, dropped = state.book.trained_samples, state.book.dropped_samples
    detail = f"{trained} samples trained, {dropped} dropped, syncs: {state.syncs}"
    is_barren = trained == 0 and dropped > 0
    if is_barren:
        why = "where no optimizer step was applied, let step call ctx.optimizer_step()"
        if state.barren_cycles:
            why = (
                "no rank had finite values in any average; look at the loss, the data and the "
                "learning rate"
            )
        detail += f"; every sample was dropped: {why}"
        state.alert(Severity.CRITICAL, "nothing_trained", detail)
    begin_closing(
        state,
        Closing(
            exit_code=ExitCode.FAILED if is_barren else ExitCode.DONE,
            save_reason=SaveReason.GRACEFUL_SHUTDOWN,
            label="nothing_trained" if is_barren else "finished",
            detail=detail,
            since=now,
            ask=True,
            plain=True,
        ),
    )


def close_failed(state: SchedulerState, reason: SaveReason, detail: str, now: Seconds) -> None:
    """Save the last commit with what is known and leave: the run cannot go on."""
    by_loss = reason in (SaveReason.ALL_RANKS_LOST, SaveReason.MAX_FAILURE_EXCEEDED)
    cause = f"; first cause: {state.first_cause}" if by_loss else ""
    state.alert(Severity.CRITICAL, reason.value, detail)
    begin_closing(
        state,
        Closing(
            exit_code=ExitCode.FAILED,
            save_reason=reason,
            label=reason.value,
            detail=detail + cause,
            since=now,
            ask=False,
        ),
    )


def begin_closing(state: SchedulerState, closing: Closing) -> None:
    """Enter CLOSING; a run that is ending already goes on with the end it has."""
    if state.ending:
        state.note("already_ending", label=closing.label)
        return
    state.closing = closing
    state.stage = RunStage.CLOSING
    state.evaluation = None
    state.quiet_since = None


def poll_closing(state: SchedulerState, now: Seconds) -> bool:
    """Start the last save once no other one is being written.

    Where it turns out to be needless, everybody leaves at once.
    """
    closing = state.closing
    if state.stage is not RunStage.CLOSING or closing is None:
        return False
    if closing.begun:
        is_needless = state.saves.phase is SavePhase.REST
        if is_needless:
            leave(state, now)
        return is_needless
    if state.saves.phase is SavePhase.WRITING:
        return False
    held = save_hold(state)
    if held is not None and not held.passed(now):
        return False
    closing.begun = True
    reason = closing.save_reason
    if state.whole_version is None:
        state.saves.rest()
        leave(state, now)
    elif closing.ask and make_final(state, reason, now):
        state.note("save_becomes_the_last", version=state.whole_version)
    elif not closing.ask or not ask_for_save(state, SavePurpose.FINAL, reason, now):
        write_bundle(state, SavePurpose.FINAL, reason, now)
    return True


def save_hold(state: SchedulerState) -> Ceiling | None:
    """How long the last save waits for the root, which is in the middle of a commit."""
    closing = state.closing
    if closing is None or closing.begun or state.saves.phase is SavePhase.WRITING:
        return None
    if state.cycle.phase is CyclePhase.BUFFERING:
        return Ceiling(closing.since, _ROUND_WAIT_S)
    return Ceiling(closing.retried_at, _RETRY_WAIT_S) if closing.retried_at is not None else None


def save_finished(state: SchedulerState, event: SaveFinished, now: Seconds) -> None:
    """A write ended, well or not."""
    save = state.saves.current
    if save is None or state.saves.phase is not SavePhase.WRITING or save.version != event.version:
        state.note("save_out_of_place", version=event.version)
        return
    state.saves.rest()
    state.saves.last_error = event.error
    if event.error is None:
        state.saves.keep_good(save, now)
    final = save.purpose is SavePurpose.FINAL
    if event.error is not None and final and _root_moved_on(state, event.version, now):
        return
    if event.error is not None:
        state.alert(
            Severity.WARN,
            "save_failed",
            f"version {event.version} was not saved: {event.error}; {state.saves.last_good(now)}",
        )
    if final and state.closing is not None:
        state.closing.save_error = event.error
        leave(state, now)


def _root_moved_on(state: SchedulerState, version: int, now: Seconds) -> bool:
    """Whether the last save is started again: a cycle was under way and has committed since."""
    closing = state.closing
    if closing is None or closing.retries >= _MOST_RETRIES:
        return False
    moved = bool(closing.late_rounds) or (state.whole_version or 0) > version
    if not moved and not state.cycle.pending:
        return False
    closing.retries += 1
    closing.retried_at = None if moved else now
    closing.begun = False
    closing.ask = False
    return True


def leave(state: SchedulerState, now: Seconds) -> None:
    """Tell every rank to go, and wait for them."""
    closing = state.closing
    assert closing is not None
    state.stage = RunStage.LEAVING
    state.leaving_since = now
    state.cycle.abandon()
    state.saves.rest()
    plain = closing.plain or state.committed_version is None
    state.send_alive(Shutdown() if plain else ShutdownWithSave(reason=closing.save_reason))
    poll_leaving(state)


def poll_leaving(state: SchedulerState) -> bool:
    """End when nobody is left."""
    if state.stage is not RunStage.LEAVING or state.cohort.alive:
        return False
    end_as_planned(state)
    return True


def leave_behind(state: SchedulerState) -> None:
    """End as planned without the ranks that have not left."""
    state.note("did_not_leave", ranks=", ".join(map(str, state.cohort.alive_ranks)))
    end_as_planned(state)


def end_as_planned(state: SchedulerState) -> None:
    """End with the code of the closing, or NOT_SAVED if it promised a bundle in vain."""
    closing = state.closing
    assert closing is not None
    code, detail = closing.exit_code, closing.detail
    if closing.save_error is not None:
        code = ExitCode.NOT_SAVED if code in _SAVED_CODES else code
        detail = f"{detail}; the last save failed: {closing.save_error}"
    finish(state, code, closing.label, detail)


def finish(state: SchedulerState, exit_code: int, label: str, detail: str) -> None:
    """Say that the run is over; nothing follows."""
    state.stage = RunStage.ENDED
    state.cycle.abandon()
    state.out.append(RunFinished(exit_code, label, detail))


def saved_by_now(state: SchedulerState, now: Seconds) -> None:
    """The grace of a stop is over: save what is committed, with what is known."""
    if not state.ending:
        if state.whole_version is None:
            give_up(state, "stopped", "stopped before the initial broadcast was committed")
        else:
            close_for_stop(state, now, ask=False)
    elif state.stage is RunStage.CLOSING and state.saves.phase is SavePhase.ASKING:
        assert state.closing is not None
        give_up_asking(state, state.closing.save_reason, now)
