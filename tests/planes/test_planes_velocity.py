"""Random rounds on the root's two sides against a reference in f64 that has no sides at all."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from planes_world import geometry_of

from flodl_core.ids import Cycle, OuterKind, Round, WireDtype
from flodl_core.planes.bucket_former import BucketFormer
from flodl_core.planes.consensus import CommittedView, Consensus
from flodl_core.planes.round_plan import RoundPlan
from flodl_core.planes.staging import Staging
from flodl_core.planes.velocity import Velocity
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.fold import Term
from flodl_core.reduce.outer import OuterMomentum, outer_rule

SIZES = (5, 3, 4)
GEOMETRY = geometry_of(SIZES)


@dataclass(frozen=True)
class Step:
    """One cycle: what each segment's bucket got, in mass and value; absent where it is frozen."""

    parts: tuple[tuple[float, float] | None, ...]
    is_realized: bool
    is_saved: bool


@dataclass
class Reference:
    """What the papers' formulas make of the same rounds."""

    rule: OuterMomentum
    x: list[float]
    v: list[float] = field(default_factory=lambda: [0.0] * len(SIZES))
    is_begun: bool = False

    def take(self, step: Step) -> None:
        masses = [part[0] for part in step.parts if part is not None]
        if not step.is_realized or not any(masses):
            return
        for index, part in enumerate(step.parts):
            if part is None or not part[0]:
                continue
            mean = float(np.float32(part[1]))
            if not self.is_begun:
                self.x[index] = mean
                continue
            g = self.x[index] - mean
            v = self.v[index] = self.rule.momentum * self.v[index] + g
            down = self.rule.momentum * v + g if self.rule.kind is OuterKind.NESTEROV else v
            self.x[index] -= self.rule.lr * down
        self.is_begun = True


parts = st.one_of(
    st.none(),
    st.tuples(st.sampled_from((0.0, 1.0, 3.0)), st.floats(-8, 8, width=32)),
)
steps = st.builds(
    Step,
    parts=st.tuples(*[parts] * len(SIZES)),
    is_realized=st.sampled_from((True, True, True, False)),
    is_saved=st.booleans(),
)
rules = st.builds(
    outer_rule,
    st.sampled_from((OuterKind.SLOWMO, OuterKind.NESTEROV)),
    lr=st.sampled_from((0.25, 0.7, 1.0)),
    momentum=st.sampled_from((0.0, 0.5, 0.9)),
)


def plan_of(step: Step, cycle: int) -> RoundPlan:
    """A bucket for each segment that takes part."""
    active = tuple(part is not None for part in step.parts)
    buckets = tuple(
        (Run(segment.offset, segment.numel),)
        for segment, takes_part in zip(GEOMETRY.params, active, strict=True)
        if takes_part
    )
    return RoundPlan(Cycle(cycle), Round.PARAMS, buckets, active, WireDtype.F32)


def run(consensus: Consensus, former: BucketFormer, step: Step, cycle: int) -> None:
    """What the root does in a params round; one that is not realized falls apart at its end."""
    plan = plan_of(step, cycle)
    assert consensus.may_form(Round.PARAMS)
    consensus.prepare(plan)
    regions = consensus.regions(plan)
    given = [part for part in step.parts if part is not None]
    for index, (mass, value) in enumerate(given):
        values = np.full(plan.buckets[index][0].length, value, np.float32)
        terms = [Term(values, mass)] if mass else []
        former.form(plan, index, terms=terms, mass=mass, regions=regions)
    if step.is_realized and any(mass for mass, _ in given):
        consensus.commit(plan)
        consensus.finish(plan.cycle)


def state_of(view: CommittedView) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Parameters and velocity, segment by segment."""
    assert view.outer is not None
    moving = view.outer.velocity
    velocity = np.zeros(GEOMETRY.params_numel, np.float32) if moving is None else moving
    places = [slice(one.offset, one.offset + one.numel) for one in GEOMETRY.params]
    return [view.params[at].copy() for at in places], [velocity[at].copy() for at in places]


@settings(deadline=None)
@given(rules, st.lists(steps, min_size=1, max_size=12))
def test_sides_stamps_and_saves_change_nothing_of_what_is_learned(
    rule: OuterMomentum, rounds: list[Step]
) -> None:
    staging = Staging.create(GEOMETRY, 1, sides=2)
    consensus = Consensus(staging, GEOMETRY, on_unpinned=lambda: None, velocity=Velocity(GEOMETRY))
    former = BucketFormer(rule)
    begin = Step(tuple((1.0, float(index + 1)) for index in range(len(SIZES))), True, False)
    run(consensus, former, begin, 0)
    reference = Reference(rule, [float(index + 1) for index in range(len(SIZES))])
    held: tuple[CommittedView, object] | None = None
    for cycle, step in enumerate(rounds, 1):
        if held is not None:
            run(consensus, former, step, cycle)
            assert repr(state_of(held[0])) == repr(held[1])
            held[0].release()
            held = None
        else:
            run(consensus, former, step, cycle)
        reference.take(step)
        view = consensus.begin_save(cycle)
        assert view is not None
        params, velocity = state_of(view)
        for index in range(len(SIZES)):
            assert np.ptp(params[index]) == 0
            np.testing.assert_allclose(params[index], reference.x[index], rtol=1e-4, atol=1e-3)
            np.testing.assert_allclose(velocity[index], reference.v[index], rtol=1e-4, atol=1e-3)
        assert view.outer.steps_next is reference.is_begun
        if step.is_saved:
            held = view, (params, velocity)
        else:
            view.release()
    if held is not None:
        held[0].release()
    assert former.take_unstepped() == 0
    consensus.close()
    del params, velocity, view, held
    staging.close()
