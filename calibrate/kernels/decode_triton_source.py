"""The two Triton functions of `decode_triton`; a file of its own, as Triton must be installed to import it."""

# Triton reads annotations and sources itself: no postponed annotations here. What changes from point to point is no
# constant, so that it is not compiled anew for each.
import triton
import triton.language as tl


@triton.jit
def partial(query, keys, values, table, lengths, out, weight, scale, table_row, query_row, query_head, cache_block,
            cache_token, cache_head, share, splits, heads, BLOCK: tl.constexpr, DIM: tl.constexpr,
            GROUP: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Attend one share of a sequence with the query heads of one KV head; write the share's result and its log-sum."""
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence)
    begin = split * share
    end = tl.minimum(begin + share, length)
    row, column, token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, TILE)
    head = kv_head * GROUP + row
    ours = row < GROUP
    q = tl.load(query + sequence * query_row + head[:, None] * query_head + column[None, :], mask=ours[:, None],
                other=0.0)
    best = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, DIM), tl.float32)
    for start in range(begin, end, TILE):
        where = start + token
        inside = where < end
        block = tl.load(table + sequence * table_row + where // BLOCK, mask=inside, other=0).to(tl.int64)
        place = block * cache_block + (where % BLOCK) * cache_token + kv_head * cache_head
        k = tl.load(keys + place[:, None] + column[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), out_dtype=tl.float32) * scale
        scores = tl.where(inside[None, :], scores, -1e30)
        peak = tl.maximum(best, tl.max(scores, 1))
        shrink = tl.exp(best - peak)
        chance = tl.exp(scores - peak[:, None])
        chance = tl.where(inside[None, :], chance, 0.0)
        v = tl.load(values + place[:, None] + column[None, :], mask=inside[:, None], other=0.0)
        result = result * shrink[:, None] + tl.dot(chance.to(v.dtype), v, out_dtype=tl.float32)
        total = total * shrink + tl.sum(chance, 1)
        best = peak
    at = (sequence * heads + head) * splits + split
    safe = tl.where(total > 0.0, total, 1.0)
    tl.store(out + at[:, None] * DIM + column[None, :], result / safe[:, None], mask=ours[:, None])
    tl.store(weight + at, tl.where(total > 0.0, best + tl.log(safe), -1e30), mask=ours)


@triton.jit
def join(parts, weight, out, splits, heads, DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Join the shares of one query head."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    split, column = tl.arange(0, WIDTH), tl.arange(0, DIM)
    there = split < splits
    at = (sequence * heads + head) * splits
    weights = tl.load(weight + at + split, mask=there, other=-1e30)
    chance = tl.exp(weights - tl.max(weights, 0))
    chance = tl.where(there, chance, 0.0)
    part = tl.load(parts + (at + split)[:, None] * DIM + column[None, :], mask=there[:, None], other=0.0)
    total = tl.sum(part * chance[:, None], 0) / tl.sum(chance, 0)
    tl.store(out + (sequence * heads + head) * DIM + column, total.to(out.dtype.element_ty))
