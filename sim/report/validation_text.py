"""What docs/validation.md says around its tables."""

HEAD = """\
# Are published measurements reproduced?

This page is generated (`make validation`; some minutes on two cores, on a fresh clone). Each case is a scenario in
[scenarios/validation](../scenarios/validation) whose first lines say where the figures come from, what was given and
what is assumed; the measured figures are in [tests/validation](../tests/validation). Constants are those of the
shipped profiles. Errors are (predicted - measured) / measured. How step times compare with measured kernels and
servers is on [another page](accuracy.md); what is modelled and what is not, on [a third](method.md).
"""

AGENTS = """
## Agent jobs on one H200: vLLM, LMCache, Continuum

Llama-3.1-8B; jobs of eight turns that grow to 13,193 tokens, half a second of tool time between them, Poisson
arrivals for a while; mean time from a job's arrival to its end, under three policies
([FCFS](../scenarios/validation/agent_jobs_fcfs.yaml), [LMCache](../scenarios/validation/agent_jobs_lmcache.yaml)
with 400 GB of host memory, [Continuum](../scenarios/validation/agent_jobs_continuum.yaml)).

**How long jobs arrive was not published, and it decides everything.** In overload the mean time is about half of
(jobs / throughput - window), so a window twice as long looks like a server half as fast. 90 s had been inferred.
Host memory tells the two apart, without any step time: under LMCache most jobs of the window are alive at once, host
memory holds 3.1 million tokens (with HBM 3.9, but most of that lies in both), and a job 6.8 thousand on average over
its turns, 13.2 at its end. The measured times collapse between 10 and 15 jobs/s (159 to 685 s), not between 6 and
10. At 10 jobs/s a window of 45 to 58 s is the longest whose contexts fit at their average length; at 15 jobs/s one of
15 to 20 s is the longest whose contexts fit at their full length. The rows below are for 45 s; it is the one parameter
that was chosen with the measurements in sight.

Median error over the 15 rows, by window and by where step times come from (the last columns: a roofline that reaches
so much of the 989 TFLOP/s, the only parameter fitted, the same for every row):
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
The limits of a step were not published. The rows above have the defaults of vLLM's server on this GPU; with one seed:
"""

AGENTS_AFTER = """
![Mean job time against arrival rate for three policies, measured and predicted](figures/validation_agent_jobs.png)

What is thought to be missing:

- **At 1 job/s everything is a quarter to a third too fast**, 2 to 3 s a job or 0.3 s a turn. No policy matters
  there: it is time outside the steps (HTTP, tokenising 13k tokens, the client, the tool's own start), of which the
  profile knows 14 ms a request.
- **LMCache's own cost.** Measured, it is 1.2 s slower than plain vLLM at 1 job/s: storing and looking up take the
  engine's time. Simulated, copies run beside the steps for free, and the two are the same.
  The authors give 0.95 ms of scheduling a step for plain vLLM and 2.33 ms with LMCache (arXiv:2511.02230, read in a
  review of it): 1.4 ms over the 160 tokens of a job are 0.2 s of the 1.2 s. A scenario cannot add time to measured
  steps, so this is not in the rows above.
- **At 3 jobs/s** the three are measured 20.7, 24.3 and 28.1 s. With 45 s they are predicted alike: simulated contexts
  still fit, so there is nothing for a policy to do. This is where arrivals are about as fast as the engine, and a
  busier draw or a longer window begins to fill memory: see the table by seeds. A draw of 135 jobs is not enough to
  tell what is missing here.
- **LMCache at 10 jobs/s** takes 169 to 218 s by seed, measured 159 s: below all five, so not chance. It is where
  host memory begins to overflow, so what overflows, and when, decides it. The crossover there (less than half of FCFS)
  holds on average, 197 against 200 s, and fails with two of the five seeds.
"""

CPU = """
## KV in host memory: Qwen3-32B on 16 H100

llm-d's guide to tiered prefix caches: 45 requests at a time, drawn from 45 groups that share a system prompt, on
eight engines; [30,000 shared tokens](../scenarios/validation/cpu_tier_30k.yaml) are more than HBM holds,
[8,000](../scenarios/validation/cpu_tier_8k.yaml) are not. Nothing is fitted: step times are the H100's measured
tables. Offload is `--set 'tiers.dram={capacity: 344 GB, write: on_compute, prompt_only: true}'`: the guide sets
`num_cpu_blocks` to 41,000 an engine, which for this model are 172 GB (16 tokens of 262,144 B a block), not the
"approximately 100 GB" that it says of them; a host has two engines.
"""

READINGS = """
What the guide leaves open, or says twice, decides part of the answer. Each row below changes one thing in the
30,000-token case. The first row is what is shown above; it is the reading of the source, not the closest row:
"""

CPU_AFTER = """
What is thought to be missing:

- **The router.** llm-d scores active requests, KV use and the prefix in HBM and host memory, each normalised;
  simulated is the prefix in HBM (1/3) against the number of turns (2/3). With less weight on the prefix groups
  spread, hits fall and TTFT rises: TTFT hangs on this more than on anything else, and is the least certain figure
  here. The guide's weights can also be read as 1/2 for the prefix (in the table): then the mean request at 30,000
  without offload is predicted 28 % too fast, beyond the 25 % asked for, so that verdict rests on this reading.
- **TTFT at 8,000 tokens** is 0.1 s in all; what differs is how often a group's prompt is computed a second time on
  another engine. Its 90th percentile lies where that begins to happen, so its relative error says little.
- **Decoding is 9 to 15 % too fast**: after the first token a request takes 28.8 s measured at 30,000 tokens without
  offload and 18.3 s at 8,000, and is predicted faster in both. Faster decoding frees memory sooner, so fewer requests
  wait for it: part of the missing TTFT at 30,000 is probably this.
- **Cold start and length.** How many requests warmed the caches before the measurement is not said; here none do. The
  table above says what the length of the run is worth.
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
