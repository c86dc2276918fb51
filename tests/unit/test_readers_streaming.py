"""Does a reader hold a trace, or only what it has to?"""

import json
import tracemalloc

import pytest

from workloads.readers import open_trace

MEGABYTE = 2**20


def mooncake(n):
    """Blocks numbered as they appear: 250 ids a request, and every other request begins like the one before."""
    ids = []
    fresh = 0
    for number in range(n):
        kept = ids[:125] if number % 2 else []
        ids = [*kept, *range(fresh, fresh + 250 - len(kept))]
        fresh += 250 - len(kept)
        yield {"timestamp": number * 100, "input_length": 250 * 512, "output_length": 5, "hash_ids": ids}


def kvplan(n):
    for number in range(n):
        for turn in range(20):
            yield {"trajectory": f"t{number}", "turn": turn, "prompt": [["/system", 5000], ["chat", 300 * (turn + 1)]],
                   "output": 20, "after": [turn - 1] if turn else [], "note": "x" * 400}


def dynamo(n):
    """Sessions of 20 requests of real hashes: 80k tokens at first, each prompt the one before and two blocks more."""
    for number in range(n):
        ids = [hash((number, k)) & (2**62 - 1) for k in range(150)]
        for turn in range(20):
            ids = [*ids, *(hash((number, turn, k)) & (2**62 - 1) for k in range(2))]
            yield {"request_id": f"{number}.{turn}", "session_id": str(number), "input_length": len(ids) * 512,
                   "output_length": 5, "hash_ids": ids, "wait_for": [f"{number}.{turn - 1}"] if turn else []}


def spans(n):
    for number in range(n):
        yield {"traceId": f"{number // 20:032x}", "spanId": f"{number:016x}", "parentSpanId": "",
               "startTimeUnixNano": str(number * 10**9), "endTimeUnixNano": str(number * 10**9 + 10**8),
               "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                              {"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(100 + number % 20)}},
                              {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "5"}},
                              {"key": "gen_ai.input.messages", "value": {"stringValue": "words " * 500}}]}


def azure(n):
    yield "TIMESTAMP,ContextTokens,GeneratedTokens"
    for number in range(n):
        yield f"2023-11-16 {number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.0,4808,10"


def sessions(n):
    yield "session,turn,prompt,output,wait,note"
    for number in range(n):
        for turn in range(20):
            yield f"s{number},{turn},{100 * (turn + 1)},5,3,{'x' * 60}"


#: Rows, their number, and the memory that may be in use, as a share of the file: nothing for what really streams; the
#: numbers of every span; an object for every request whose prefix others may share.
CASES = {"mooncake": (mooncake, 2_500, 0.15), "kvplan": (kvplan, 400, 0.05), "dynamo-agentic": (dynamo, 50, 0.6),
         "otel-genai": (spans, 1_500, 0.25), "azure": (azure, 30_000, 0.05), "sessions-csv": (sessions, 1_000, 0.12)}


@pytest.mark.parametrize("format", CASES)
def test_memory_is_a_fraction_of_the_file(format, tmp_path):
    rows, count, share = CASES[format]
    file = tmp_path / ("x.csv" if format in ("azure", "sessions-csv") else "x.jsonl")
    with file.open("w") as handle:
        for row in rows(count):
            handle.write((row if isinstance(row, str) else json.dumps(row)) + "\n")
    size = file.stat().st_size
    assert size > 0.7 * MEGABYTE
    next(open_trace(file, format))  # what is imported and cached is not the reader's
    tracemalloc.start()
    found = sum(1 for _ in open_trace(file, format))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found >= count / 25
    assert peak < share * size + MEGABYTE // 8
