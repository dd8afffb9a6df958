"""Brings batches to the device; to a GPU on a stream of its own.

```
training's stream   ── batch k ───────────────┬─ batch k+1 ──
copies' stream         copy of k+1 ─▶ event ──┘
```

Behind the batch before, on its stream, a copy would begin only when that batch is done;
and one from memory that is not pinned would keep the host waiting as long. The training
thread drives it.
"""

import torch

from flodl_core.training.batches import Batch, map_leaves, move_batch, move_leaf


class BatchMover:
    """Moves the batches of one rank.

    Args:
        device: where the model lies.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = (
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            if device.type == "cuda"
            else None
        )

    def move(self, batch: Batch) -> Batch:
        """Return the batch with every tensor on the device, for the current stream to use."""
        if self._stream is None:
            return move_batch(batch, self._device)
        user = torch.cuda.current_stream(self._device)

        def copied(leaf: Batch) -> Batch:
            if not isinstance(leaf, torch.Tensor):
                return move_leaf(leaf, self._device)
            if not leaf.is_cpu or leaf.is_nested or leaf.layout != torch.strided:
                # what is on a GPU may still be in the making there; the rest has no one storage
                return leaf.to(self._device, non_blocking=True)
            with torch.cuda.stream(self._stream):
                moved = leaf.to(self._device, non_blocking=True)
            moved.record_stream(user)
            return moved

        moved = map_leaves(batch, copied)
        user.wait_stream(self._stream)
        return moved
