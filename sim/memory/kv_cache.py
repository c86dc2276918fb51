"""Sequences over the prefix tree: what a running turn holds, from admission to its end.

A sequence matches a prefix, locks it, takes blocks as it grows, and hands the blocks of content that others may reuse
to the tree: as soon as they are computed (`on_chunk`) or when it ends (`on_finish`). Blocks that it has not handed over
are its own and are freed with it: the partly filled tail, output nobody will see again, and what another sequence was
computing at the same time.
"""

from __future__ import annotations

from sim.memory.allocators.paged import BlockPool
from sim.memory.prefix_tree import Node, PrefixTree
from workloads.trajectory import Stream

PrivatePart = list[tuple[Node, int]]


class Sequence:
    """A running turn's block table: locked prefix, own blocks, and where its content goes in the tree.

    Attributes
    ----------
    stream, limit
        Content of the sequence: the first `limit` tokens of `stream`; tokens beyond belong to no stream.
    base
        Tokens found when it was opened: computed, or being loaded, by nobody but their first owner.
    end
        Blocks its table reaches.
    given
        Blocks of its own that it has handed to the tree.
    path, at
        Nodes its content belongs to, from the matched one down, and the index of the one its computed end lies in.
    running
        Whether a running turn locks it, or a pause whose context comes back.
    """

    __slots__ = ("at", "base", "direct", "end", "given", "limit", "lock_node", "lock_upto", "owner", "path", "running",
                 "stream")

    def __init__(self, stream: Stream, limit: int, base: int, owner: int = -1, running: bool = True) -> None:
        self.stream = stream
        self.owner = owner
        self.running = running
        self.limit = limit
        self.base = base
        self.end = 0
        self.given = 0
        self.direct = False
        self.path: list[Node] = []
        self.at = 0
        self.lock_node: Node | None = None
        self.lock_upto = 0


class KvCache:
    """HBM of one replica: a block pool and the prefix tree over it.

    Parameters
    ----------
    pool, tree
        Blocks, and what of them is cached.
    enabled
        Whether prefixes are matched and content is handed over at all.
    on_chunk
        Content becomes visible to others as soon as it is computed; otherwise when its turn ends.
    state_blocks
        Blocks a sequence takes besides its tokens', for sliding windows and linear states; freed at its end.
    """

    __slots__ = ("copies", "enabled", "on_chunk", "pool", "state_blocks", "tree")

    def __init__(self, pool: BlockPool, tree: PrefixTree, *, enabled: bool = True, on_chunk: bool = True,
                 state_blocks: int = 0) -> None:
        self.pool = pool
        self.tree = tree
        self.enabled = enabled
        self.on_chunk = on_chunk
        self.state_blocks = state_blocks
        #: Partly filled blocks copied at their first write by another sequence (copy-on-write).
        self.copies = 0

    def match(self, stream: Stream, prompt_tokens: int) -> tuple[Node | None, int]:
        """Return node and tokens of the longest cached prefix; at least one prompt token is left to compute."""
        if not self.enabled:
            return None, 0
        return self.tree.match(stream, prompt_tokens - 1)

    def available(self, stream: Stream, limit: int, node: Node | None, matched_tokens: int) -> int:
        """Return the blocks a sequence could take after locking its match: free ones and what can be evicted,
        less the blocks of its state."""
        size = self.pool.block_tokens
        woken = 0
        if self.enabled and self.on_chunk:
            upto = -(-limit // size)
            at: Stream | None = stream
            while at is not None:
                held = self.tree.nodes.get(at)
                if held is not None:
                    reach = upto if upto < held.end else held.end
                    if reach > held.used_end:
                        woken += reach - held.used_end
                    if held.runs or held.pins:
                        break  # its ancestors are locked as far as it reaches into them
                upto = at.attach // size
                at = at.parent
        else:
            upto = matched_tokens // size
            while node is not None:
                reach = min(upto, node.end)
                woken += max(0, reach - node.used_end)
                upto, node = node.first, node.parent
        return self.pool.free + self.tree.dormant - woken - self.state_blocks

    def open(self, stream: Stream, limit: int, node: Node | None, matched_tokens: int, now_s: float,
             owner: int = -1, running: bool = True) -> Sequence:
        """Start a sequence on a match: lock it, and claim the place of its content in the tree.

        `owner` is the number of the trajectory, so that its own dead content can be told from others'. One that is not
        `running` is of a pause, to be ended by `keep`.
        """
        sequence = Sequence(stream, limit, matched_tokens, owner, running)
        size = self.pool.block_tokens
        first = matched_tokens // size
        sequence.end = first
        if matched_tokens % size:
            self.copies += 1
        if self.enabled and self.on_chunk:
            self._claim(sequence, node)
            sequence.direct = True
            node = sequence.path[-1]
            first = -(-limit // size)
        sequence.lock_node, sequence.lock_upto = node, first
        self.tree.lock(node, first, running, now_s)
        if self.state_blocks:
            self._take(self.state_blocks, now_s)
        return sequence

    def grow(self, sequence: Sequence, tokens: int, now_s: float) -> None:
        """Take blocks until the table holds `tokens` tokens, evicting what is needed.

        Raises
        ------
        ValueError
            If there are not enough free and dormant blocks (callers ask `available` first).
        """
        need = -(-tokens // self.pool.block_tokens) - sequence.end
        if need > 0:
            self._take(need, now_s)
            sequence.end += need

    def commit(self, sequence: Sequence, tokens: int) -> None:
        """Tokens up to `tokens` are computed or loaded: let others find them, unless that waits for the end."""
        if tokens > sequence.limit:
            tokens = sequence.limit
        if sequence.stream.seen < tokens:
            mark_seen(sequence.stream, tokens)
        if sequence.direct:
            self._hand_over(sequence, tokens)

    def close(self, sequence: Sequence, tokens: int, now_s: float, *, finished: bool = True) -> Node | None:
        """End a sequence of which `tokens` tokens are computed; return the node its content ends in, if it is cached.

        A sequence that is preempted (`finished` false) leaves what it has already handed over.
        """
        tree = self.tree
        if tokens > sequence.limit:
            tokens = sequence.limit
        if sequence.stream.seen < tokens:
            mark_seen(sequence.stream, tokens)
        if finished and self.enabled:
            if not sequence.direct:
                self._claim_late(sequence, now_s)
            self._hand_over(sequence, tokens)
            if tree.exact_tail:
                self._keep_tail(sequence, tokens)
        self._give_back(sequence)
        tree.unlock(sequence.lock_node, sequence.lock_upto, sequence.running, now_s)
        last = sequence.path[-1] if sequence.path else None
        for node in reversed(sequence.path):
            if node.end == node.first:
                tree.discard_if_empty(node, now_s)
        return last if last is not None and last.end > last.first else None

    def keep(self, sequence: Sequence, tokens: int, now_s: float) -> list[Node]:
        """End a sequence of a pause whose tokens (all of them) are there: its lock stays, a pin of the pause.

        Return the nodes that it has filled, deepest first.
        """
        mark_seen(sequence.stream, tokens)
        if not sequence.direct:
            self._claim_late(sequence, now_s)
        before = [(node, node.end) for node in reversed(sequence.path)]
        self._hand_over(sequence, tokens)
        filled = []
        for node, end in before:
            if node.end > end:
                filled.append(node)
                self.tree.keep(node.kept_blocks(node.end) - node.kept_blocks(end), now_s)
        self._give_back(sequence)
        return filled

    def private_part(self, node: Node | None, owner: int = -1) -> PrivatePart:
        """Return the nodes, deepest first, and the block from which each is used by nobody else than this context.

        Called when the context's own turn holds no lock any more. With an `owner`, only nodes this trajectory made
        count, and what grew out of them does not matter where it is its own and dead (the end of an earlier prompt).
        """
        part: PrivatePart = []
        child: Node | None = None
        while node is not None and (owner < 0 or node.owner == owner):
            floor = node.used_end
            others = False
            for kid in node.children or ():
                if kid is child or (owner >= 0 and self.tree.is_dead(kid, owner)):
                    continue
                others = True
                if kid.first > floor:
                    floor = kid.first
                if owner >= 0 and kid.owner != owner:
                    floor = node.end
                    break
            if floor < node.end:
                part.append((node, floor))
            if others or node.runs or node.pins:
                break
            child, node = node, node.parent
            if node is not None and node.end > child.first:
                break  # what lies behind the place where the context left this stream is not its own
        return part

    def drop(self, part: PrivatePart, now_s: float) -> int:
        """Free a private part now; return the blocks freed."""
        freed = 0
        for node, floor in part:
            freed += self.tree.cut_dead(node, floor, now_s) + self.tree.cut(node, floor, now_s)
        return freed

    def _give_back(self, sequence: Sequence) -> None:
        """Free what a sequence has kept to itself."""
        own = sequence.end - sequence.base // self.pool.block_tokens - sequence.given
        self.pool.give(own + self.state_blocks)

    def _take(self, count: int, now_s: float) -> None:
        if count > self.pool.free:
            self.tree.evict(count - self.pool.free, now_s)
        self.pool.take(count)

    def _claim_late(self, sequence: Sequence, now_s: float) -> None:
        """At its end, give a sequence that kept everything to itself its place in the tree."""
        self._claim(sequence, sequence.lock_node)
        upto = max(self.pool.blocks(sequence.limit), sequence.lock_upto)
        self.tree.lock(sequence.path[-1], upto, sequence.running, now_s)
        self.tree.unlock(sequence.lock_node, sequence.lock_upto, sequence.running, now_s)
        sequence.lock_node, sequence.lock_upto = sequence.path[-1], upto

    def _claim(self, sequence: Sequence, node: Node | None) -> None:
        """List the nodes the sequence's content belongs to, from the matched one down; make those that are missing."""
        if node is not None and node.stream is sequence.stream:
            sequence.path = [node]
            return
        missing: list[Stream] = []
        at: Stream | None = sequence.stream
        stop = node.stream if node is not None else None
        while at is not None and at is not stop:
            missing.append(at)
            at = at.parent
        if stop is not None and at is None:
            raise ValueError(f"{sequence.stream!r} does not grow out of {stop!r}")
        path = [node] if node is not None else []
        parent = node
        for stream in reversed(missing):
            parent = self.tree.nodes.get(stream) or self.tree.add(stream, parent, sequence.owner)
            path.append(parent)
        sequence.path = path

    def _hand_over(self, sequence: Sequence, tokens: int) -> None:
        """Give the tree the whole blocks of what is computed, node by node, as far as it does not have them.

        When two sequences compute the same content, whoever has a block first gives it; the other keeps its own.
        """
        size = self.pool.block_tokens
        path = sequence.path
        last = len(path) - 1
        while True:
            node = path[sequence.at]
            upto = tokens
            if sequence.at < last and path[sequence.at + 1].stream.attach < tokens:
                upto = path[sequence.at + 1].stream.attach
            end = upto // size
            if end > node.end:
                sequence.given += end - node.end
                self.tree.extend(node, end, end * size)
            elif end == node.end and node.tokens < end * size:
                node.tokens = end * size
            if upto == tokens:
                return
            sequence.at += 1

    def _keep_tail(self, sequence: Sequence, tokens: int) -> None:
        """Leave the partly filled tail block in the tree, so that a later sequence can copy it."""
        node = sequence.path[-1]
        size = self.pool.block_tokens
        whole, rest = divmod(tokens, size)
        if not rest or tokens <= node.stream.attach:
            return
        if node.end == whole:
            sequence.given += 1
            self.tree.extend(node, whole + 1, tokens)
        elif node.end == whole + 1 and node.tokens < tokens:
            node.tokens = tokens  # a longer copy takes the place of a shorter one


def mark_seen(stream: Stream | None, tokens: int) -> None:
    """Record that the first `tokens` tokens of `stream` have been computed by someone."""
    while stream is not None and stream.seen < tokens:
        stream.seen = tokens
        tokens = min(tokens, stream.attach)
        stream = stream.parent


def ceiling(stream: Stream, prompt_tokens: int, block_tokens: int) -> int:
    """Return the prompt tokens a cache of infinite size would hold, in whole blocks; one token is left to compute."""
    tokens = prompt_tokens - 1
    at: Stream | None = stream
    while at is not None:
        found = at.seen if at.seen < tokens else tokens
        if found > at.attach:
            return found - found % block_tokens
        if at.attach < tokens:
            tokens = at.attach
        at = at.parent
    return 0
