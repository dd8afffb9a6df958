"""Tables of the machines: their data as it stands, and what the real ones answer."""

import ast
import inspect

from doc_code import attribute_docs
from doc_tables import first_sentence, source_of
from doc_text import table

from flodl_core.config.window import WindowConfig
from flodl_core.coordinator import advance, cycle, inbox, saves
from flodl_core.coordinator import ledger as step_ledger
from flodl_core.dispatch import actions, pacer
from flodl_core.ids import Round, RoundOutcome, StartMode, SyncOutcome
from flodl_core.machines import Note, Tick
from flodl_core.membership import ledger
from flodl_core.membership.window import WindowState, review_window
from flodl_core.messages import control, data
from flodl_core.relay import machine as relay

STEPS_IN_WORDS = {
    "_poll_rendezvous": "Trigger cycle 0, the initial broadcast, when the uid is out.",
    "_poll_gate": "Trigger the next cycle if the gate is open.",
    "_poll_leaving": "End the run when no rank is left to wait for.",
}


def _word(method):
    return method.strip("_").replace("_", " ")


def _diagram(edges, *, start):
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}"]
    lines += [f"    {source} --> {target}: {label}" for source, target, label in edges]
    return "\n".join([*lines, "```"]) + "\n"


# -- the membership ledger --------------------------------------------------------------


def ledger_table():
    """Return the deed of every event in every phase."""
    phases = list(ledger.TRANSITIONS)
    kinds = list(ledger.TRANSITIONS[phases[0]])
    rows = [
        (f"`{kind.__name__}`", *(_word(ledger.TRANSITIONS[phase][kind]) for phase in phases))
        for kind in kinds
    ]
    return table(["event", *(f"`{phase.value}`" for phase in phases)], rows)


def ledger_deeds():
    """Return every deed that the table names."""
    return {_word(deed) for row in ledger.TRANSITIONS.values() for deed in row.values()}


def window_table():
    """Return the verdict of the window in every case, by asking the rule itself."""
    rows = []
    for mode in StartMode:
        target = None if mode is StartMode.MANUAL else 4
        config = WindowConfig(
            min_rank_start=2,
            target_ranks=target,
            join_timeout_s=300.0,
            max_join_timeout_s=600.0,
            start_mode=mode,
        )
        for joined in (1, 2, 4):
            for asked in (False, True):
                cells = []
                for waited_s in (0.0, 300.0, 600.0):
                    verdict = review_window(joined, waited_s, config, start_requested=asked)
                    mark = (
                        "" if verdict.state is WindowState.OPEN else f"**{verdict.state.value}**: "
                    )
                    cells.append(f"{mark}{verdict.reason}")
                rows.append((f"`{mode.value}`", joined, "yes" if asked else "no", *cells))
    head = ["start mode", "ranks in", "start asked", "in the window", "past it", "at the cap"]
    return table(head, rows)


# -- the averaging cycle ------------------------------------------------------------------


def cycle_table():
    """Return every pair that moves the cycle."""
    docs = _enum_docs(cycle, "CycleStep")
    rows = [
        (f"`{phase.value}`", f"`{step.value}`", f"`{target.value}`", docs.get(step.name, ""))
        for (phase, step), target in cycle.TRANSITIONS.items()
    ]
    return table(["phase", "step", "next phase", ""], rows)


def cycle_diagram():
    edges = [
        (phase.name, target.name, step.value)
        for (phase, step), target in cycle.TRANSITIONS.items()
        if step is not cycle.CycleStep.ABANDONED
    ]
    return _diagram(edges, start=cycle.CyclePhase.IDLE.name)


def _enum_docs(module, name):
    node = next(one for one in source_of(module).body if getattr(one, "name", "") == name)
    return attribute_docs(node.body)


def step_ledger_table():
    """Return where the batch ledger goes, by asking real ones."""
    phases = step_ledger.LedgerPhase
    ways = {
        phases.OPEN: (),
        phases.ARMED: ("arm",),
        phases.SEALED: ("arm", "seal"),
    }
    rows = []
    for phase, way in ways.items():
        cells = []
        for deed in ("arm", "seal", "finish"):
            book = step_ledger.StepLedger()
            for done in way:
                getattr(book, done)()
            assert book.phase is phase
            getattr(book, deed)()
            cells.append(f"`{book.phase.value}`")
        book = step_ledger.StepLedger(phase=phase)
        book.report(1, 32)
        half = "closing" if book.closing_batches else "open"
        rows.append((f"`{phase.value}`", half, *cells))
    return table(["phase", "a report goes to", "`arm`", "`seal`", "`finish`"], rows)


def settle_steps():
    """Return what is tried after every event, in order."""
    rows = []
    for number, step in enumerate(advance.STEPS, 1):
        module = inspect.getmodule(step).__name__.rpartition(".")[2]
        said = first_sentence(inspect.getdoc(step)) or STEPS_IN_WORDS[step.__name__]
        rows.append((number, f"`{module}.{step.__name__}`", said))
    return table(["", "step", "does"], rows)


def inbox_table():
    """Return which part takes which message of a rank."""
    rows = [
        (f"`{kind.__name__}`", f"`{handler.__name__}`") for kind, handler in inbox.HANDLERS.items()
    ]
    return table(["message", "taken by"], rows)


def save_table():
    """Return what the save desk is in, with what it is for."""
    rows = [(f"`{one.value}`", said) for one, said in _members_with_docs(saves, saves.SavePurpose)]
    return table(["purpose", ""], rows)


def _members_with_docs(module, kind):
    docs = _enum_docs(module, kind.__name__)
    return [(one, docs.get(one.name, "")) for one in kind]


# -- the relay ------------------------------------------------------------------------------


def relay_rounds():
    """Return the round that follows each one."""
    rows = []
    for kind in Round:
        for outcome in RoundOutcome:
            cells = []
            for has_buffers in (True, False):
                if kind is Round.BUFFERS and not has_buffers:
                    cells.append("–")
                    continue
                then = relay.following_round(kind, outcome, has_buffers=has_buffers)
                cells.append(f"`{then.value}`" if then else "the cycle is over")
            rows.append((f"`{kind.value}`", f"`{outcome.value}`", *cells))
    head = ["round", "ended", "then, with buffers", "then, without"]
    return table(head, rows)


def _round_end(kind, outcome=RoundOutcome.COMMITTED):
    return relay.RoundEndReceived(
        data.RoundEnd(cycle=1, round=kind, outcome=outcome, ranks_accepted=(0, 1), mass=2.0)
    )


def _relay_in(way):
    one = relay.RelayMachine((0, 1), has_buffers=True)
    for event in way:
        one.handle(event, 0.0)
    return one


RELAY_STATES = {
    "nobody is ready": (),
    "rank 0 is ready": (relay.RankReady(0, 1),),
    "in the control round": (relay.RankReady(0, 1), relay.RankReady(1, 1)),
    "in the params round": (
        relay.RankReady(0, 1),
        relay.RankReady(1, 1),
        _round_end(Round.CONTROL),
    ),
    "in the buffers round": (
        relay.RankReady(0, 1),
        relay.RankReady(1, 1),
        _round_end(Round.CONTROL),
        _round_end(Round.PARAMS),
    ),
    "draining": (
        relay.RankReady(0, 1),
        relay.RankReady(1, 1),
        relay.RankGone(0),
        relay.RankGone(1),
    ),
    "ended": (relay.UpstreamClosed("gone"),),
}
RELAY_EVENTS = {
    "`RankReady` of rank 0": relay.RankReady(0, 1),
    "`RankReady` of rank 1": relay.RankReady(1, 1),
    "`RankGone` of rank 0": relay.RankGone(0),
    "`RankGone` of rank 1": relay.RankGone(1),
    "`RoundEndReceived`, control, committed": _round_end(Round.CONTROL),
    "`RoundEndReceived`, control, unrealized": _round_end(Round.CONTROL, RoundOutcome.UNREALIZED),
    "`RoundEndReceived`, params, committed": _round_end(Round.PARAMS),
    "`RoundEndReceived`, buffers, committed": _round_end(Round.BUFFERS),
    "`UpstreamClosed`": relay.UpstreamClosed("the connection ended"),
    "`Tick`, past the drain's ceiling": Tick(),
}


def _relay_effect(effect):
    match effect:
        case relay.ShipRound():
            ranks = ", ".join(map(str, effect.ranks))
            return f"`ShipRound` {effect.round.value} of {ranks}"
        case relay.FanOut():
            return f"`FanOut` to {', '.join(map(str, effect.ranks)) or 'nobody'}"
        case relay.DropRank():
            return f"`DropRank` {effect.rank}"
        case Note():
            return f"note `{effect.code}`"
    return f"`{type(effect).__name__}`"


def relay_answers():
    """Return what a relay of two ranks answers to each event in each state."""
    rows = []
    for event_name, event in RELAY_EVENTS.items():
        cells = []
        for way in RELAY_STATES.values():
            one = _relay_in(way)
            told = one.handle(event, 1e6 if isinstance(event, Tick) else 1.0)
            cells.append(", ".join(map(_relay_effect, told)) or "–")
        rows.append((event_name, *cells))
    return table(["event", *RELAY_STATES], rows)


# -- the pacer ----------------------------------------------------------------------------


def _plan(size=64, *, epoch=0, window=1):
    return control.StartEpoch(
        plan=control.EpochPlan(epoch=epoch, offset=0, size=size, window_batches=window)
    )


def _drive(one, way):
    for step in way:
        if step == "next":
            one.next_action()
        else:
            one.handle(step)


_FINISHED = actions.BatchFinished(32, True)
_ADOPTED = actions.CycleAdopted(1, SyncOutcome.COMMITTED)
_STEP = control.SetGlobalStep(n=0)
_TRAINED = (_plan(), _STEP, "next", _FINISHED)
_ASKED = (*_TRAINED, control.RequestParams(cycle=1))
_RUNNING = (_plan(window=0), _STEP, "next", _FINISHED, control.RequestParams(cycle=1))
PACER_STATES = {
    "no plan": (),
    "free to train": (_plan(), _STEP),
    "in a batch": (_plan(), _STEP, "next"),
    "window full": _TRAINED,
    "asked for its snapshot": _ASKED,
    "in the rounds": (*_ASKED, "next"),
    "adopted": (*_ASKED, "next", _ADOPTED),
    "in the rounds, running on": (*_RUNNING, "next"),
    "leaving": (control.Shutdown(),),
}
PACER_INPUTS = {
    "`StartEpoch`": _plan(epoch=1),
    "`RequestParams` of cycle 1": control.RequestParams(cycle=1),
    "`RequestParams` of cycle 2": control.RequestParams(cycle=2),
    "`Cut` of cycle 1": control.Cut(cycle=1),
    "`Update` of cycle 1": control.Update(version=1, cycle=1),
    "`Update` of cycle 2": control.Update(version=2, cycle=2),
    "`SetGlobalStep`": control.SetGlobalStep(n=4),
    "`ExtendPartition`": control.ExtendPartition(epoch=0, offset=640, size=32),
    "`Throttle`": control.Throttle(),
    "`Checkpoint` with this rank as target": control.Checkpoint(version=1, target_rank=0),
    "`ExecuteEval` for this rank": control.ExecuteEval(schedule_id=0, epoch=0, target_rank=0),
    "`Checkpoint` with another as target": control.Checkpoint(version=1, target_rank=1),
    "`EpochAggregated`": control.EpochAggregated(epoch=0, samples=64),
    "`SyncNow` of cycle 1": control.SyncNow(cycle=1, session=0),
    "`DeclareDead`": control.DeclareDead(rank=1),
    "`RequestNewNcclId`": control.RequestNewNcclId(session=1),
    "`NewNcclSession`": control.NewNcclSession(
        session=1, uid=bytes(128), new_rank=0, new_world_size=2
    ),
    "`Shutdown`": control.Shutdown(),
    "`ShutdownWithSave`": control.ShutdownWithSave(reason="graceful_shutdown"),
}


def _action_word(action):
    name = type(action).__name__
    return f"`{name}` ({action.reason.value})" if isinstance(action, actions.Hold) else f"`{name}`"


def _settled_action(one):
    """Return the next action that is no report: reports may come in between at any time."""
    action = one.next_action()
    while isinstance(action, actions.ReportEpoch):
        action = one.next_action()
    return _action_word(action)


def pacer_states():
    """Return what a rank does in each of the states, before anything comes."""
    rows = []
    for name, way in PACER_STATES.items():
        one = pacer.RankPacer(0, 32)
        _drive(one, way)
        stage = f"`{one.stage.value}`" if one.stage else "–"
        rows.append((name, stage, _settled_action(one)))
    return table(["state", "cycle stage", "next action"], rows)


def pacer_answers():
    """Return what a rank does next after each message in each state, with the notes."""
    rows = []
    for input_name, message in PACER_INPUTS.items():
        cells = []
        for way in PACER_STATES.values():
            one = pacer.RankPacer(0, 32)
            _drive(one, way)
            notes = [f"note `{note.code}`" for note in one.handle(message)]
            cells.append(", ".join([_settled_action(one), *notes]))
        rows.append((input_name, *cells))
    return table(["message", *PACER_STATES], rows)


def pacer_actions():
    """Return the actions and what each asks of whoever performs it."""
    kinds = (
        actions.TrainBatch,
        actions.TakeSnapshot,
        actions.AwaitRounds,
        actions.ReportEpoch,
        actions.WriteCheckpoint,
        actions.RunEval,
        actions.Hold,
        actions.Leave,
    )
    rows = [(f"`{kind.__name__}`", first_sentence(kind.__doc__)) for kind in kinds]
    return table(["action", "meaning"], rows)


def pacer_holds():
    rows = [
        (f"`{one.value}`", said or "Told to start no other batch before the next Update.")
        for one, said in _members_with_docs(actions, actions.HoldReason)
    ]
    return table(["hold", "meaning"], rows)


def handled_by_pacer():
    """Return the names of every message and event that a pacer takes."""
    tree = source_of(pacer)
    handlers = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "_HANDLERS"
    )
    return {ast.unparse(key).rpartition(".")[2] for key in handlers.keys}
