"""The steps of a save: ask every alive rank, take the answers, have the bundle written.

What it is: what is sent for a save and what each answer or death does to it, and what
the meta file says of the commit that is saved.
What it is not: when a save is due (`saves`), and how a run ends after the last one.
Who drives it: `averaging` at a finish, `inbox` with answers, `dead_ranks`, `ending`.

    ask_for_save ──Checkpoint──▶ every alive rank
    take_answer  ◀──CheckpointResult── each; the last one starts the write
"""

from dataclasses import replace

from flodl_core.coordinator import cuts
from flodl_core.coordinator.cohort import RankRecord
from flodl_core.coordinator.effects import SaveBundle, Severity
from flodl_core.coordinator.facts import OpenTotals, SaveFacts
from flodl_core.coordinator.saves import Save, SavePhase, SavePurpose
from flodl_core.coordinator.state import SchedulerState
from flodl_core.ids import Cycle, Rank, SaveReason
from flodl_core.messages.control import Checkpoint
from flodl_core.messages.timing import CheckpointResult
from flodl_core.reduce.velocity_cycles import next_publish
from flodl_core.units import Seconds

_INITIAL_BROADCAST = Cycle(0)


def ask_for_save(
    state: SchedulerState, purpose: SavePurpose, reason: SaveReason, now: Seconds
) -> bool:
    """Ask every alive rank for what only it has; False if nobody is there to ask.

    Only the lowest one is asked where nothing will be written: its buffers are to be known.
    """
    alive = state.cohort.alive_ranks
    if not alive or state.committed_version is None:
        return False
    target, version = alive[0], state.committed_version
    is_prime = purpose is SavePurpose.PRIME
    state.saves.owes_prime = False
    publish = None if is_prime else _next_publish(state)
    asked = alive[:1] if is_prime else alive
    before = state.saves.current or state.saves.left_open
    unheard = before.owed if before is not None and before.version == version else {}
    state.saves.ask(
        Save(
            version=version,
            purpose=purpose,
            reason=reason,
            since=now,
            target=target,
            owed={rank: 1 + unheard.get(rank, 0) for rank in asked},
            publish=publish,
        )
    )
    order = Checkpoint(
        version=version,
        target_rank=target,
        with_rank_files=not is_prime and not state.barren_cycles,
        saved_version=state.saves.saved_version,
        publish=publish,
    )
    for rank in asked:
        state.send(rank, order)
    return True


def _next_publish(state: SchedulerState) -> Cycle | None:
    """Return the root's cycle for a save on NCCL, in which all ranks take part; else None."""
    if state.nccl is None:
        return None
    has_velocity = state.spec.outer is not None
    state.nccl.published = next_publish(state.nccl.published, has_velocity=has_velocity)
    return Cycle(state.nccl.published)


def take_answer(
    state: SchedulerState, record: RankRecord, answer: CheckpointResult, now: Seconds
) -> None:
    """Take a rank's CheckpointResult; the last one that is awaited starts the write.

    One to a save that was given up says only that the rank is done with it.
    """
    saves = state.saves
    save = saves.current if saves.current is not None else saves.left_open
    if save is None or record.rank not in save.owed or save.version != answer.version:
        state.note("checkpoint_out_of_place", rank=record.rank, version=answer.version)
        return
    record.progress_at = now
    save.settle(record.rank)
    if state.evaluation is not None and state.evaluation.target == record.rank:
        state.evaluation = replace(state.evaluation, since=now)  # which it begins only now
    if save is saves.left_open:
        state.note("save_was_given_up", rank=record.rank, version=answer.version)
        return
    if record.rank == save.target and record.rank not in save.owed:
        _take_buffers(state, save, record, answer)
    if answer.rank_file is not None:
        save.files[record.rank] = answer.rank_file
    if answer.rank_file_error is not None:
        state.alert(
            Severity.WARN,
            "save_failed",
            f"{record.where} has written no file of its own for version {save.version}: "
            f"{answer.rank_file_error}; a resume gives it a fresh optimizer",
            rank=record.rank,
        )
    _write_if_answered(state, save, now)


def _take_buffers(
    state: SchedulerState, save: Save, record: RankRecord, answer: CheckpointResult
) -> None:
    if answer.error is None:
        state.saves.local_buffers = answer.local_buffers
        if state.nccl is not None and save.publish is not None:
            state.nccl.brought = (save.version, save.publish)
        return
    detail = f"{record.where} could not tell its buffers for the checkpoint: {answer.error}"
    state.saves.last_error = answer.error
    state.alert(Severity.WARN, "save_failed", detail, rank=record.rank)


def _write_if_answered(state: SchedulerState, save: Save, now: Seconds) -> None:
    if save.owed:
        return
    cuts.begin_again(state, now)
    if save.purpose is SavePurpose.PRIME:
        state.saves.rest()
    else:
        write_bundle(state, save.purpose, save.reason, now)


def asked_rank_lost(state: SchedulerState, rank: Rank, now: Seconds) -> None:
    """A rank that was asked for a save is gone: the save goes on without its file.

    If its buffers were wanted, a periodic save is due again at the next commit, since only
    then another rank holds the buffers of that very commit; so is the question for buffers
    alone, beside which the ranks train. The last save asks the next rank at once: nobody
    trains on before it is done.
    """
    save = state.saves.current
    if save is None or rank not in save.owed:
        return
    del save.owed[rank]
    if rank != save.target:
        _write_if_answered(state, save, now)
    elif save.purpose is SavePurpose.PERIODIC:
        state.saves.give_up()
        state.saves.demand(f"the save that rank {rank} left open")
    elif save.purpose is SavePurpose.PRIME:
        state.saves.give_up()
        state.saves.owes_prime = True
    else:
        _ask_next(state, save, now)


def _ask_next(state: SchedulerState, save: Save, now: Seconds) -> None:
    alive = state.cohort.alive_ranks
    if not alive:
        save.owed.clear()
        _write_if_answered(state, save, now)
        return
    save.target, save.since = alive[0], now
    save.publish = _next_publish(state)
    order = Checkpoint(
        version=save.version,
        target_rank=alive[0],
        with_rank_files=False,
        publish=save.publish,
    )
    for rank in alive if save.publish is not None else alive[:1]:
        save.owed[rank] = save.owed.get(rank, 0) + 1
        state.send(rank, order)


def write_bundle(
    state: SchedulerState, purpose: SavePurpose, reason: SaveReason, now: Seconds
) -> None:
    """Have the committed values written, with the buffers and rank files that are known.

    On NCCL the last save writes nothing if no rank has brought the values for it and a bundle
    of them is complete: it could not be better than that, and might fail.
    """
    version = state.whole_version
    assert version is not None
    save = state.saves.current
    is_asked = save is not None and save.version == version
    publish = save.publish if save is not None and is_asked else None
    is_kept = purpose is SavePurpose.FINAL and state.saves.is_kept(version)
    if is_kept and state.nccl is not None and state.nccl.brought != (version, publish):
        state.note("saved_already", version=version)
        state.saves.rest()
        return
    # what is written again, since the run ends before a commit, is no worse than what it replaces
    files = dict(state.saves.good_files) if state.saves.saved_version == version else {}
    if save is not None and is_asked:
        files |= save.files
    state.saves.write(version, purpose, reason, files=files, now=now)
    state.out.append(
        SaveBundle(
            version,
            reason,
            save_facts(state, now),
            state.saves.local_buffers,
            rank_files=tuple(files[rank] for rank in sorted(files)),
            held_as=_held_as(state, publish),
        )
    )


def _held_as(state: SchedulerState, publish: Cycle | None) -> int | None:
    """Return in which of its cycles the root got the values that are to be written."""
    if state.nccl is None:
        return None
    if publish is not None:
        return publish
    version, cycle = state.nccl.brought or (state.first_version, _INITIAL_BROADCAST)
    return cycle if version == state.whole_version else -1


def make_final(state: SchedulerState, reason: SaveReason, now: Seconds) -> bool:
    """Make the save that ranks are being asked for the last one; False if there is none.

    Nobody writes its file twice for one commit.
    """
    save = state.saves.current
    if save is None or not save.owed or save.purpose is SavePurpose.PRIME:
        return False
    if save.version != state.whole_version:
        return False
    save.purpose, save.reason, save.since = SavePurpose.FINAL, reason, now
    return True


def give_up_asking(state: SchedulerState, reason: SaveReason, now: Seconds) -> None:
    """Have the last bundle written with the answers that are here."""
    assert state.saves.phase is SavePhase.ASKING
    state.note("save_without_answer", version=state.committed_version)
    write_bundle(state, SavePurpose.FINAL, reason, now)


def save_facts(state: SchedulerState, now: Seconds) -> SaveFacts:
    """What the meta file says of the newest whole commit."""
    book, spec = state.book, state.spec
    half = state.half_committed
    undone = half.entries if half is not None else ()
    return SaveFacts(
        epoch=book.open.span.event if book.open else book.next_event,
        epochs=spec.epochs,
        epoch_splits=spec.epoch_splits,
        global_step=half.global_step if half else state.global_step,
        sync_round=state.whole_version or 0,
        world_size=state.envelope.world_size,
        ranks_alive=len(state.cohort.alive),
        seed=spec.seed,
        batch_size=spec.batch_size,
        n_samples=spec.n_samples,
        samples_trained=half.trained_samples if half else book.trained_samples,
        samples_dropped=half.dropped_samples if half else book.dropped_samples,
        coverage=book.coverage(without=undone),
        elche=state.cadence.record() if state.cadence is not None else None,
        syncs=state.syncs - (half is not None),
        arrangement=None if undone else book.arrangement(state.envelope.world_size),
        finished=tuple(state.epochs),
        open_totals=_open_totals(state, now),
    )


def _open_totals(state: SchedulerState, now: Seconds) -> OpenTotals | None:
    open_event, totals = state.book.open, state.totals
    if open_event is None or totals is None:
        return None
    return totals.so_far(now - open_event.opened_at)
