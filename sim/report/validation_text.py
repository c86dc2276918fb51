"""What docs/validation.md says around its tables."""

HEAD = """\
# Are published measurements reproduced?

This page is generated (`make validation`; some minutes on two cores, on a fresh clone). Each case is a scenario in
[scenarios/validation](../scenarios/validation) whose first lines say where the figures come from, what was given and
what is assumed; the measured figures are in [tests/validation](../tests/validation). Constants are those of the
shipped profiles. Errors are (predicted - measured) / measured. How step times compare with measured kernels and
servers is on [another page](accuracy.md); what is modelled and what is not, on [a third](method.md).
"""

SHORT = """
In short:

- **Agent jobs** on one GPU, 15 mean job times under three policies: off by {low} to {high} in the median, by seed, with
  one parameter read off the published rows (jobs arrive for {window} s) and step times as they ship. With the
  {inferred} s that had been inferred it is {stated}, even with a fitted prefill rate. Which is right was never
  published.
- **KV in host memory** on 16 GPUs behind a router, nothing fitted: mean request times and throughput within {request};
  offload gains {predicted_30k} of throughput where {measured_30k} was measured, and {predicted_8k} where it was
  {measured_8k}. Mean time to first token is off by up to {ttft}.
- **Where the answer is known**, queues, paging and chunked prefill, it is found.

What is missed stays on the page, with what is thought to be missing; nothing is tuned to it.
"""

AGENTS = """
## Agent jobs on one H200: vLLM, LMCache, Continuum

Llama-3.1-8B; jobs of eight turns that grow to 13,193 tokens, half a second of tool time between them, Poisson
arrivals for a while; mean time from a job's arrival to its end, under three policies
([FCFS](../scenarios/validation/agent_jobs_fcfs.yaml), [LMCache](../scenarios/validation/agent_jobs_lmcache.yaml)
with 400 GB of host memory, [Continuum](../scenarios/validation/agent_jobs_continuum.yaml)).

**How long jobs arrive was not published, and it decides everything.** In overload the mean time is about half of
(jobs / throughput - window), so a window twice as long looks like a server half as fast. 90 s had been inferred. The
published rows say something else, twice, without any step time:

- *Host memory.* Under LMCache most jobs of the window are alive at once, host memory holds 3.1 million tokens (with HBM
  3.9, but most of that lies in both), and a job 6.8 thousand on average over its turns, 13.2 at its end. The measured
  times collapse between 10 and 15 jobs/s (159 to 685 s), not between 6 and 10. At 10 jobs/s a window of 45 to 58 s is
  the longest whose contexts fit at their average length; at 15 jobs/s one of 15 to 20 s is the longest whose contexts
  fit at their full length.
- *A line through Continuum's rows.* Jobs that arrive at a rate for W seconds and are served in their order, at most so
  many a second, take T + W/2 (rate/most - 1) on average. Through the times at 6 and 15 jobs/s, with the one at 1 as T,
  that gives W = {line:.0f} s; at 10 jobs/s the line is at {on_line:.0f} s, measured {ten:.0f}. Simulated rows are not
  quite of a constant throughput either: how much of their window the same line gives back is in the table.

Both say 45 to 60 s and not 90. The rows below are for {window} s. It is the one parameter, read off the measured rows;
no step time is fitted.

Median error over the 15 rows, by window and by where step times come from (the last columns: a roofline that reaches
so much of the 989 TFLOP/s, fitted, the same for every row):
"""

ORDER = """\
With {window} s and the H200's measured tables as they ship, row by row, the mean over {seeds} seeds of the arrivals.
Two times have an order if they differ by more than {margin}, predicted ones with every seed in the same direction. Of
{pairs} pairs that have one as measured, {right} come out so, {wrong} come out reversed, and {neither} are predicted
alike; from 6 jobs/s on, {high} of {high_pairs} come out as measured. The measured crossovers: FCFS collapses between
3 and 6 jobs/s; LMCache keeps up with Continuum at 6, falls behind at 10, and has collapsed at 15.
"""

SEEDS = """
How much of this is chance? The measurement is one draw of arrivals, so an error within what the seeds differ by is no
finding. Least to greatest over the seeds, for the window shown and the one that had been inferred; which of the two is
right is not known:
"""

SETTINGS = """
The limits of a step were not published, nor what of its scheduling the measured tables hold. The rows above have the
defaults of vLLM's server on this GPU; with one seed:
"""

AGENTS_AFTER = """
![Mean job time against arrival rate for three policies, measured and predicted](figures/validation_agent_jobs.png)

What is thought to be missing:

- **At 1 job/s everything is a quarter to a third too fast**, 2 to 3 s a job or 0.3 s a turn. No policy matters
  there: it is time outside the steps (HTTP, tokenising 13k tokens, the client, the tool's own start), of which the
  profile knows 14 ms a request.
- **LMCache's own cost.** Measured, it is 1.2 s slower than plain vLLM at 1 job/s: storing and looking up take the
  engine's time. Of that the rows above hold what the authors give for scheduling, 2.33 ms a step against 0.95 ms in
  plain vLLM (arXiv:2511.02230, read in a review of it): the difference, as measured step times hold a plain vLLM's. It
  is 0.2 to 0.3 s of the 1.2. The rest is per prompt, not per step: hashing and gathering its chunks, which is not
  published; simulated, copies run beside the steps for free.
- **At 3 jobs/s** the three are measured 20.7, 24.3 and 28.1 s. With 45 s they are predicted nearly alike: simulated
  contexts still fit, so there is little for a policy to do. This is where arrivals are about as fast as the engine, and
  a busier draw or a longer window begins to fill memory: see the table by seeds. A draw of 135 jobs is not enough to
  tell what is missing here.
- **LMCache at 10 jobs/s** takes {low:.0f} to {high:.0f} s by seed, measured 159 s: below all five, so not chance. It
  is where host memory begins to overflow, so what overflows, and when, decides it. The crossover there (less than half
  of FCFS) holds on average, {mean:.0f} against {half:.0f} s, and fails with {fails} of the five seeds.
"""

CPU = """
## KV in host memory: Qwen3-32B on 16 H100

llm-d's guide to tiered prefix caches: 45 requests at a time, drawn from 45 groups that share a system prompt, on
eight engines; [30,000 shared tokens](../scenarios/validation/cpu_tier_30k.yaml) are more than HBM holds,
[8,000](../scenarios/validation/cpu_tier_8k.yaml) are not. Nothing is fitted: step times are the H100's measured
tables. Offload is `--set 'tiers.dram={capacity: 172 GB, write: on_compute, prompt_only: true}'`: the guide sets
`num_cpu_blocks` to 41,000 an engine, which for this model are 172 GB (16 tokens of 262,144 B a block), not the
"approximately 100 GB" that it says of them. Each engine has its own, so a node here is one engine.

The router is the one that the guide installs at the commit its figures are from: the chart `inferencepool` v1.0.1 as it
comes, which weighs few waiting requests, a free pool and the prefix alike. Its prefix scorer does not know what an
engine holds: it remembers the first 256 blocks of the prompts it sent there, 31,250 blocks an engine, so of 45 groups
it forgets none, and sends them to engines that have long evicted them.
"""

READINGS = """
What the guide leaves open, or says twice, decides part of the answer. Each row below changes one thing in the
30,000-token case. The first row is what is shown above; it is the reading of the source, not the closest row:
"""

CPU_AFTER = """
What is thought to be missing:

- **TTFT at 30,000 tokens is a third short.** It hangs on where the router sends the groups, 2.8 to 6.3 s over the
  rows above. What is left may be prefill: a chunk on a long cached past is in no public table and is taken to cost what
  an uncached prompt of equal arithmetic costs, so that 32k tokens alone take 2.6 s, two thirds of the peak. The real
  router also reads queues and memory late, and so sends more to the same engine.
- **A router that knows less gains more by offload.** One that knows what HBM holds finds more of it, so host memory
  adds 8 %. The measured 21 % needs one that sends groups where they were, which is the one installed.
- **Decoding is 8 to 10 % too fast**, and frees memory too soon. Attention was measured with this model's heads on two
  GPUs, so it is not that. The tables are of vLLM 0.24; the guide's figures are from late 2025, when scheduling beside
  the running step was an experimental switch of vLLM's (its pull request 19970). With the 0.95 ms a step that
  scheduling is said to take (above) the 8,000-token case decodes 3 % too fast instead of 8. How much of it the engine's
  fitted overhead holds already is not known, so it is not in the rows above.
- **TTFT at 8,000 tokens** is 0.1 s in all; what differs is how often a group's prompt is computed a second time on
  another engine. Its 90th percentile lies where that begins to happen, so its relative error says little.
- **Cold start and length.** How many requests warmed the caches before the measurement is not said; here none do. A
  longer run has a fuller host memory: offload gains 11 % in 3 minutes, 24 % in 12. 450 requests take 6.
"""

KNOWN = """
## Chunked prefill

[32 streams decode when a prompt of 4,096 tokens arrives](../scenarios/validation/chunked_prefill.yaml): computed
whole it stops them for 1.19 s, 25.6 decode steps; in chunks of 512 a token takes at most 3.4 decode steps.
"""

PAGING = """
## Paging

Pages of 16 tokens waste 0.4 % of what contexts hold and admit 16 times as many contexts as buffers of the longest
length ({static} of 32,768 tokens fit in the pool): [contexts](../scenarios/validation/paging_contexts.yaml),
[tails](../scenarios/validation/paging_tail.yaml).
"""

QUEUES = """
## Queues

A replica cut down to a server whose steps take 1 ms ([M/G/1](../scenarios/validation/queue_mg1.yaml),
[M/M/c](../scenarios/validation/queue_mmc.yaml)). *Formula* is Pollaczek-Khinchine or Erlang's C; a finite run
differs from it by chance, within the 95 % interval of its replications nineteen times in twenty. *Same requests* is
what the very arrivals and service times of the run give by the recursions of Lindley and of Kiefer and Wolfowitz: a
run may differ from that by the wait for a step boundary only. More of these, with intervals, are in
[tests/theory](../tests/theory). With this seed M/G/1 lies outside its interval: one request in ten is long, and these
runs drew 2 % more work than that gives; over eight seeds such draws wait 1.650 s on average, 1.5 % off the formula.
"""

LINK = """
## Host link

GB/s from an H100 to host memory by the size of a contiguous piece, as the catalogue's PCIe 5 link gives it to a run,
beside the vLLM project's measurements (blog of 2026-01-08, figure 3, digitised to +-0.5 GB/s). Two figures a curve
were fitted to these points, so this says how well the form fits, not what it predicts.

![Bandwidth against piece size, measured and by formula](figures/validation_link.png)

The copy kernel at 4 KiB is 2.6 times slower than the form says: the curve has a knee there. KV pieces are that small
only in layouts by layer with short blocks.
"""
