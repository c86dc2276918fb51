"""Adaptive replacement: what was used once against what was used again, the split learned from what was lost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Literal

from sim.policies.base import PolicyConfig


class Arc(PolicyConfig):
    """Keep content used once apart from content used again, and evict from whichever has more than its share.

    Both lists remember what they lost lately (ghosts, keys without content). A ghost of the first that comes back says
    that content used once deserves more room, one of the second that it deserves less (ARC: N. Megiddo, D. Modha,
    FAST 2003). Content that is seen once and never again, such as a scan, flows through the first list and leaves the
    second alone.
    """

    policy: Literal["arc"] = "arc"
    """Name of the policy."""

    def start(self, capacity_blocks: int) -> ArcLists:
        """Return fresh ghosts and target for a cache of so many blocks."""
        return ArcLists(capacity_blocks)


class ArcLists:
    """The memory of an adaptive replacement cache: ghosts of both lists, and the share meant for content used once.

    Sizes are in blocks, since entries differ. The target is kept as a share of what can be evicted: content in use
    belongs to neither list.

    Parameters
    ----------
    capacity_blocks
        Blocks the cache holds; each ghost list remembers as many.
    """

    __slots__ = ("_ghosts", "_sizes", "capacity_blocks", "share")

    def __init__(self, capacity_blocks: int) -> None:
        self.capacity_blocks = max(1, capacity_blocks)
        #: Share of the evictable blocks that content used once may take.
        self.share = 0.0
        self._ghosts: tuple[OrderedDict[Hashable, int], OrderedDict[Hashable, int]] = (OrderedDict(), OrderedDict())
        self._sizes = [0, 0]

    def ghost_blocks(self, *, used_again: bool) -> int:
        """Return the blocks that one of the ghost lists remembers."""
        return self._sizes[used_again]

    def evicted(self, key: Hashable, blocks: int, *, used_again: bool) -> None:
        """Remember blocks of `key` that were evicted; the oldest ghosts make room."""
        ghosts = self._ghosts[used_again]
        ghosts[key] = ghosts.pop(key, 0) + blocks
        self._sizes[used_again] += blocks
        while self._sizes[used_again] > self.capacity_blocks and len(ghosts) > 1:
            self._sizes[used_again] -= ghosts.popitem(last=False)[1]

    def recall(self, key: Hashable, blocks: int) -> bool:
        """Blocks of `key` are cached again; learn from it if they were remembered, and return whether they were."""
        found = False
        for used_again, sign in ((0, 1.0), (1, -1.0)):
            ghost = self._ghosts[used_again].pop(key, 0)
            if ghost:
                other, own = self._sizes[1 - used_again], self._sizes[used_again]
                step = max(1.0, other / own) * min(ghost, blocks) / self.capacity_blocks
                self.share = min(1.0, max(0.0, self.share + sign * step))
                self._sizes[used_again] -= ghost
                found = True
        return found

    def takes_from_once(self, once_blocks: int, again_blocks: int) -> bool:
        """Return whether the next victim is content used once, given the evictable blocks of either kind."""
        if not once_blocks or not again_blocks:
            return once_blocks > 0
        return once_blocks > self.share * (once_blocks + again_blocks)
