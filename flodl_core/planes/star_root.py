"""The root of the star: the controller's CPU reduce, in the launcher.

```
local Ready marks ┐
                  ├─▶ barrier ─▶ control sum ─▶ params buckets ─▶ buffers buckets ─▶ next cycle
host buckets ─────┘   each round: RoundEnded to the coordinator first, then RoundEnd to everybody
```

The launcher's own ranks are host number 0 and have no relay: their slots are folded
here. A bucket is Σ mass·x over hosts in order, divided once by the mass accepted for
it. A host whose link breaks is out of the buckets that follow and of
`ranks_accepted`; a death frees the barrier at once.

One thread of its own waits, folds and sends; links and the event loop post to it.
Driven by the launcher. It decides nothing about training: which cycle runs is the
ranks' marks, what a round's end means is the coordinator's.
"""

import socket
import threading
from collections.abc import Callable, Mapping

from flodl_core.coordinator.events import RoundEnded
from flodl_core.errors import FlodlError, LocalProtocolError
from flodl_core.ids import Cycle, HostName, Rank, Round, RoundOutcome
from flodl_core.messages.data import BucketFrame, RankTally, RoundEnd
from flodl_core.messages.job import Envelope
from flodl_core.messages.mux import RelayDeclareDead
from flodl_core.planes.consensus import CommittedView, Consensus
from flodl_core.planes.control_vector import tallies_of
from flodl_core.planes.event_loop import PlaneLoop
from flodl_core.planes.host_port import HostPort
from flodl_core.planes.link import BucketLink
from flodl_core.planes.local_group import LocalGroup
from flodl_core.planes.peers import Peer, Peers
from flodl_core.planes.root_rounds import FormedRound, form_control, RoundFormer
from flodl_core.planes.round_plan import RoundPlan, control_frame, plan_buffers, plan_params
from flodl_core.planes.staging import Staging
from flodl_core.reduce.mass import is_realized
from flodl_core.relay.machine import Note, following_round
