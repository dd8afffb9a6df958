"""Who runs the callbacks of a run, and what is known of them.

What it is: settings, the evaluation that is under way or owed, the costs, the ranks that
failed, and the election of a rank.
What it is not: a message; `coordinator.callbacks` sends them.
Who drives it: `coordinator.callbacks`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flodl_core.elche.callback_cost import CallbackCosts
from flodl_core.ids import CallbackPolicy, Rank
from flodl_core.units import Milliseconds, Seconds

MOST_TRIES: Final = 3
"""Ranks that are asked for one evaluation before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSettings:
    """What a user may choose.

    Attributes:
        policy: how the rank is chosen.
        fixed_rank: of the policy FIXED; where it is gone the lowest alive rank stands in.
        eval_every: events between two evaluations; 0 evaluates after the last one only.
    """

    policy: CallbackPolicy = CallbackPolicy.FASTEST
    fixed_rank: Rank | None = None
    eval_every: int = 1

    def is_due(self, event: int, events: int) -> bool:
        """Return whether the model is evaluated after an event, the last one always."""
        done = event + 1
        return done == events or (self.eval_every > 0 and done % self.eval_every == 0)


@dataclass(frozen=True, slots=True)
class EvalWait:
    """An evaluation that a rank was asked for.

    Attributes:
        is_beside: whether the others train meanwhile.
        tries: ranks that were asked so far, this one included.
    """

    schedule_id: int
    epoch: int
    target: Rank
    since: Seconds
    is_beside: bool = False
    tries: int = 1


@dataclass(slots=True)
class CallbackDesk:
    """The callbacks of one run."""

    settings: CallbackSettings = field(default_factory=CallbackSettings)
    costs: CallbackCosts = field(default_factory=CallbackCosts)
    owed: EvalWait | None = None
    """One whose rank was lost or failed while the others trained: it is made up for at the
    next average, where every rank holds a consensus again."""
    _role: Rank | None = None
    _failed: set[Rank] = field(default_factory=set)

    def fail(self, rank: Rank) -> None:
        """A rank's callback raised: others are asked first from now on."""
        self._failed.add(rank)

    def is_left(self, alive: Sequence[Rank]) -> bool:
        """Whether a rank is alive that has not failed."""
        return any(rank not in self._failed for rank in alive)

    def elect(self, alive: Sequence[Rank], ms_per_batch: Mapping[Rank, Milliseconds]) -> Rank:
        """Return who runs the next callback.

        Args:
            alive: at least one rank, ascending; those that failed before are passed over as
                long as another is left.
            ms_per_batch: of the ranks that were measured.
        """
        able = [rank for rank in alive if rank not in self._failed] or list(alive)
        if self.settings.policy is CallbackPolicy.FIXED:
            return self.settings.fixed_rank if self.settings.fixed_rank in able else able[0]
        if self.settings.policy is CallbackPolicy.STICKY and self._role in able:
            return self._role
        measured = [rank for rank in able if rank in ms_per_batch]
        self._role = min(measured, key=lambda rank: (ms_per_batch[rank], rank), default=able[0])
        return self._role
