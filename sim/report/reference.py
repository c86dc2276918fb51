"""The page that documents a run's files, made from the tables the engine fills."""

from __future__ import annotations

from sim.records import TABLES

#: summary.json: key -> what it says. Dots lead into a mapping.
SUMMARY: dict[str, str] = {
    "turns": "turns finished in the whole run",
    "trajectories": "`started`, `finished` and `rejected` in the whole run",
    "ttft_s.first": "time to first token of first turns: queue, reload and the steps until the first token",
    "ttft_s.resumed": "the same, of turns that follow a pause",
    "ttft_s.all": "the same, of all turns",
    "itl_s": "inter-token latency: time between two tokens of a stream, each gap counted once a stream; read from a "
             "histogram with 1 % buckets",
    "tpot_s": "a turn's time after its first token, per further token",
    "turn_s": "a turn from ready (arrival or the tool's return) to its last token",
    "trajectory_s": "a trajectory from arrival to the end of its last turn, of those that finished after the warm-up",
    "throughput": "`turns_per_s`, `trajectories_per_s`, `output_tokens_per_s`, `prompt_tokens_per_s`: what finished "
                  "after the warm-up, over the measured span",
    "goodput": "null without `slo:`. `turns` and `trajectories`: shares within limits (rejected ones are not; a turn "
               "is held to the highest percentile of each objective, and to its TPOT for `itl`; a trajectory is good "
               "when each of its turns is); the same per second; `met` and `objectives`: each with its limit, value "
               "and verdict",
    "hit_rate": "shares of prompt tokens, one denominator: `total` = `hbm` + `dram` + ...; null for a tier that the "
                "scenario lacks; `ceiling`: what an infinite cache would have found",
    "counts": "`evictions`, `forced_evictions`, `preemptions`, `rejections`, `deadlocks_broken`, `cow_copies` and "
              "whatever else the engine counts, in the whole run; evictions are of blocks. With measured step times, "
              "`outside_measured_*` (look-ups beyond what a table holds) and `lookups_measured_*` (all look-ups in "
              "it): one a step, or one for a stretch of decode steps worked out together",
    "lost_contexts": "tiers from which contexts were evicted before their agents came back (`lost` of those `moved` "
                     "there; `tokens` computed again) while more than a tenth of what they stored over time was not "
                     "read again (`unread`, without those): content of trajectories that have ended stays until it is "
                     "evicted. Not of tiers that are `exclusive`",
    "unused_tiers": "tiers that nothing was written to in the measured span, each with why and what to set",
    "routing": "null with one replica. Of turns that follow another: `moved`, the share served by another replica "
               "than the turn before; `found_moved` and `found_stayed`, shares of their prompt tokens found in a "
               "cache; `recomputed_moved`, what the former computed again as a share of all prompt tokens",
    "allocation": "`efficiency` (slots with a token over allocated ones) and `effective_occupancy` (over the pool), "
                  "averaged over time; `external_fragmentation`, the share of free memory in holes too small for "
                  "`request_tokens` (the median turn, prompt and output), averaged over the pictures in address_space",
    "blocks": "null for contiguous buffers. `block_tokens`; `table_entries` of the median turn; "
              "`attention_efficiency`, the rate of decode attention with blocks of that size (16 tokens = 1), and "
              "`copy_efficiency`, the share of the host link's rate that copies out of HBM reach",
    "over_hbm_bytes": "bytes by which weights and a given `engine.pool` exceed the HBM of a replica; 0 where they fit",
    "ledger.turn_s": "seconds by cause; they sum to the measured turns' time",
    "ledger.pool_byte_s": "byte-seconds of the KV pool by use; they sum to pool bytes x measured span x replicas",
    "ledger.gpu_s": "replica-seconds by use; they sum to measured span x replicas",
    "ledger.tier_byte_s": "of each tier that there is: byte-seconds by use (written, read later, not read, free); they "
                          "sum to its capacity x measured span, over all nodes",
    "ledger.link_s": "of each way of each link (`host_out`, `host_in`, `nvme_out`, ...): seconds by use; they sum to "
                     "measured span x links (one a replica to the host, one a node to storage and to the network)",
    "hold_GB_s": "GB-seconds that paused contexts held: `total`, `by_tier`, `by_tool`, `by_tool_and_tier`; of each "
                 "pause in `pauses.parquet`",
    "concurrency": "`mean` (after the warm-up) and `max` (whole run) of trajectories alive",
    "binds": "`resource` whose shortage explains most of the turns' time (`memory`, `host_link`, `compute`, "
             "`hbm_bandwidth`, `interconnect`, `step_overhead`; `none` when GPUs are mostly idle and turns hardly "
             "wait), `why` in a sentence, `scores`: share of the turns' time by resource. Where an objective on TTFT, "
             "TPOT or whole turns is missed, all are of the turns beyond its percentile, and of the time it limits",
    "cost": "`usd` of the measured span, all GPUs; `usd_per_trajectory`, `usd_per_Mtok_output`, `usd_per_Mtok_total`; "
            "null without a price",
    "breakers": "`span` (label of the content) and `recomputed_tokens`, the ten that cost most",
    "prediction_error": "how far the wait predictor was off, as the engine reports it",
    "checks": "`stable` (shown as *steady*: false when the queue or the number alive grows, null when too short to "
              "say), "
              "`little_residual` (|L - lambda W| / L of turns in the system; large when turns are left over at the end "
              "or the queue grows), `alive_residual` (the engine's integral of trajectories alive against their "
              "recorded lives), `warmup_s`, `warmup_settled`, `span_s`, `turns_measured`, `ledger_residual` (relative, "
              "of each ledger), `replications`, `closed_load` (a fixed number of agents, whose queue cannot grow "
              "beyond them), `trajectory_median_s` (what half of the trajectories take at most; those that go on count "
              "as longer than until now, Kaplan and Meier; null when too few end), `shorter_than_trajectories` (it is "
              "more than `span_s`)",
    "intervals": "95 % intervals, cut at what a figure can be (not below 0), by path in this file: "
                 "`value`, `low`, `high`, `level`, `method`, `n`, and with "
                 "several replications their `values`",
    "band": "error of the timing model, once it is calibrated; null until then",
    "wall_s": "seconds the simulation took on this computer",
    "events": "events simulated",
}

HEAD = """\
# Files of a run

This page is generated (`python -m sim.report.reference docs/results.md`); edit `sim/records.py` and
`sim/report/reference.py` instead.

- `run.yaml`: the resolved scenario, then `provenance`: version, seed entropy, hashes of the data files.
  `kvplan run DIR` runs it again.
- `summary.json`: the figures below.
- `turns.parquet`, `trajectories.parquet`, `pauses.parquet`, `moves.parquet`, `timeline.parquet`: one row a record;
  columns below.
- `steps.json`: histograms of step time and inter-token latency after the warm-up (`low_s`, `high_s`, `weight`,
  `seconds`), and `bound_s`: seconds of steps by what bound them.

A run is written next to its folder and moved there when whole. SI units throughout; GB is 1e9 bytes. The same scenario,
seed and version give the same bytes, but for `wall_s`.

## What is measured

- **Warm-up.** `warmup: auto` cuts by MSER-5 on the turns' time to first token, in order of readiness, and looks no
  further than half of them (`checks.warmup_settled` is false when the minimum lies at the half: run longer). A trace
  played to its end (no `duration`) is a finite population, not a steady state: nothing is cut.
- **Turns.** Latencies, hit rates and the ledger of turns are of finished turns that became ready at or after the
  warm-up.
- **Span.** From the warm-up to the end of the run. Throughput counts what *ended* in it; byte-seconds and GPU seconds
  are cut at its start by linear interpolation between samples. A trace's span includes the drain after its last
  arrival.
- **Histograms.** Inter-token latencies come in windows between samples; the windows that begin after the warm-up count.
- **Steady.** The span is divided into 20 windows; the run is not steady when the mean queue or the number of
  trajectories alive rises by more than a quarter of its mean, significantly. A trace is judged up to its last arrival.
  With a closed load (`arrivals: closed`) a fixed number of agents is alive, so the queue cannot grow beyond them: such
  a run becomes steady however much it asks for. It is called *steady, at its limit* when turns wait, for room or
  for each other, for more than a fifth of their time; what binds says which resource runs short.
- **Too short.** Where half of the trajectories take longer than the measured span, the run sees young agents with
  small contexts, and a load seems to fit that later does not: set a longer `duration`. A trace played to its end is
  never too short.
- **Other replicas.** With routing other than `sticky`, `routing` says how many turns came back to another replica than
  the one that had served the turn before, and what they found there.
- **Replications.** Distributions pool the turns of all replications, counts, ledgers and money add up, rates are
  weighted by span, and `checks` holds the worst.
- **Tiers.** What was written to a tier is in its ledger; `unused_tiers` names those that stayed empty. A tier is
  written to by the retention policy, by `tiers.dram.write`, or by a full tier above it (`evict_to`; when left out, the
  next tier below that the scenario has).
- **Intervals.** 95 %. Several replications: Student t over their values. One: batch means (20 batches) for means and
  rates, a bootstrap of 50 blocks of consecutive turns for percentiles.
"""

#: What the summary on a terminal and in a report calls a thing -> what that is.
WORDS = {
    "prompt tokens found": "prompt tokens whose KV was in HBM or a tier below, so that they were not computed again; "
                           "an infinite cache never forgets anything",
    "waiting for KV blocks": "turns queued because the pool of KV blocks was full",
    "waiting for a step": "turns queued behind others: the step's token budget or `max_seqs` was used up",
    "others' prefill": "decoding turns that waited while a step computed other turns' prompts",
    "recomputation": "computing prompt tokens that had been computed before and were not held",
    "preempted": "a running turn lost its blocks to others, and what it repeats of its work",
    "pinned pauses": "contexts of paused agents that may not be evicted (`retention: keep`)",
    "cache used again, cache never used again": "blocks that nobody uses, held as a prefix cache",
    "being copied": "blocks on their way to or from a tier below",
    "empty ends": "the part of a last block, or of a buffer, that holds no token yet",
    "blocks evicted": "blocks of `engine.block_size` tokens",
    "beyond tables": "share of look-ups in a table of measured step times that were beyond what was measured",
    "WHAT-IF": "the pool that the scenario gives does not fit into HBM beside the weights",
    "UNUSED": "a tier that nothing was written to, why, and what to set",
}


def results_page() -> str:
    """Return docs/results.md."""
    parts = [HEAD, "\n## Words of the summary\n\n| in the summary | what it is |\n|---|---|\n"]
    parts += [f"| {word} | {_cell(text)} |\n" for word, text in WORDS.items()]
    parts += ["\n## summary.json\n\nEach distribution has `mean`, `p50`, `p90`, `p95`, `p99`, `p999`; null where "
                   "a figure does not apply.\n\n| key | says |\n|---|---|\n"]
    parts += [f"| `{key}` | {_cell(text)} |\n" for key, text in SUMMARY.items()]
    for table, columns in TABLES.items():
        parts.append(f"\n## {table}.parquet\n\n| column | type | says |\n|---|---|---|\n")
        parts.append("| `replication` | int32 | replication, from 0 |\n")
        parts += [f"| `{name}` | {kind} | {_cell(text)} |\n" for name, (kind, text) in columns.items()]
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    import sys
    from pathlib import Path

    Path(sys.argv[1]).write_text(results_page(), encoding="utf-8")
