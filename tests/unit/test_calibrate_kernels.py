"""Is a kernel timed only when it is right?"""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from calibrate import measure
from calibrate.clock import Clock, half_width
from calibrate.kernels import all_reduce, copy_blocks, load, paged, storage, swap
from calibrate.kernels.check import WrongKernelError, agree
from calibrate.plan import TINY, TINY_SHARD, points, shard

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
SHAPE = {"heads": 4, "kv_heads": 2, "head_dim": 16}
DECODE = [{"kernel": "decode_attention", **SHAPE, "batch": b, "context": c, "block": s, "kv_dtype": d}
          for b, c, s, d in [(1, 1, 16, "fp32"), (3, 70, 16, "fp32"), (2, 129, 8, "bf16"), (2, 128, 128, "fp32")]]
PREFILL = [{"kernel": "prefill_attention", **SHAPE, "batch": b, "new": n, "past": p, "block": s, "kv_dtype": d}
           for b, n, p, s, d in [(1, 7, 0, 16, "fp32"), (2, 16, 33, 16, "fp32"), (1, 5, 100, 8, "bf16")]]


def backends(kernel):
    return [module for module in load() if kernel == module.KERNEL and module.missing(CPU) is None]


@pytest.mark.parametrize("point", [*DECODE, *PREFILL], ids=str)
def test_every_backend_agrees_with_the_reference(point):
    problem = paged.make(point, CPU)
    expected = paged.reference(problem)
    found = [*backends(point["kernel"]), import_module(f"calibrate.kernels.{point['kernel'].split('_')[0]}_flex")]
    assert all(point["kernel"] == module.KERNEL for module in found)
    assert {module.NAME for module in found} >= {"gather+sdpa", "torch-flex"}
    for module in found:
        agree(module.prepare(problem)(), expected, point["kv_dtype"])


def test_the_reference_is_plain_attention():
    problem = paged.make(PREFILL[1], CPU)
    keys, values = (part.repeat_interleave(2, dim=1) for part in paged.gathered(problem))
    mask = torch.ones(16, 49, dtype=torch.bool).tril(33)
    expected = torch.nn.functional.scaled_dot_product_attention(problem.query.transpose(1, 2), keys, values, mask)
    assert torch.allclose(paged.reference(problem), expected.transpose(1, 2), atol=1e-5)


def wrong_table(problem):
    problem.table = torch.arange(problem.table.numel(), dtype=torch.int32).view_as(problem.table)


def wrong_end(problem):
    problem.past += 1


@pytest.mark.parametrize("spoil", [wrong_table, wrong_end])
def test_a_kernel_that_reads_the_wrong_blocks_or_past_the_end_is_refused(spoil):
    problem = paged.make(DECODE[1], CPU)
    expected = paged.reference(problem)
    spoil(problem)
    gather = next(module for module in backends("decode_attention") if module.NAME == "gather+sdpa")
    with pytest.raises(WrongKernelError):
        agree(gather.prepare(problem)(), expected, "fp32")


def test_unwritten_and_nearly_right_outputs_are_refused():
    expected = torch.ones(4, 4)
    for output, text in [(torch.full((4, 4), float("nan")), "not finite"), (expected * 1.1, "relative error"),
                         (expected[:2], "shape")]:
        with pytest.raises(WrongKernelError, match=text):
            agree(output, expected, "bf16")
    assert agree(expected * 1.01, expected, "bf16") == pytest.approx(0.01, rel=1e-3)


def test_backends_are_told_apart_and_say_why_they_are_missing():
    modules = load()
    assert len({(module.KERNEL, module.NAME) for module in modules}) == len(modules)
    attention = {module.NAME for module in modules if module.KERNEL == "decode_attention"}
    assert attention == {"flashinfer", "flash-attn", "vllm", "triton-own", "torch-flex", "gather+sdpa"}
    assert {module.NAME for module in modules if module.KERNEL == "prefill_attention"} == attention - {"triton-own"}
    for module in modules:
        reason = module.missing(torch.device("cuda"))
        assert reason is None or reason.endswith("is not installed")


class Fake:
    KERNEL, NAME = "linear", "fake"

    def __init__(self, run):
        self._run = run

    def version(self):
        return "1"

    def prepare(self, problem):
        return lambda: self._run(problem)


def bench_with(run):
    return measure.Bench(CPU, Clock(CPU, most_s=0.01), {"linear": [Fake(run)]})


POINT = {"kernel": "linear", "dtype": "fp32", "n": 8, "k": 8, "tokens": 4}


def out_of_memory(_problem):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_point_that_does_not_fit_is_skipped_with_the_reason():
    assert bench_with(out_of_memory).run(POINT, "fake") == {"skipped": "out of memory"}

    # a petabyte is beyond what an address space holds: the allocator itself refuses
    real = measure.Bench(CPU, Clock(CPU, most_s=0.01))
    assert real.run({**POINT, "n": 1 << 26, "k": 1 << 22}, "torch") == {"skipped": "out of memory"}

    def unsupported(_problem):
        raise RuntimeError("head size 512 is not supported\nmore")

    assert bench_with(unsupported).run(POINT, "fake") == {"skipped": "RuntimeError: head size 512 is not supported"}


def test_a_wrong_kernel_is_refused_not_timed():
    sample = bench_with(lambda problem: problem.rows @ problem.weight.T * 1.5).run(POINT, "fake")
    assert "us" not in sample
    assert "relative error" in sample["refused"]


def test_a_right_kernel_is_timed():
    sample = bench_with(lambda problem: problem.rows @ problem.weight.T).run(POINT, "fake")
    assert sample["us"] > 0
    assert sample["repeats"] >= 5
    assert len(sample["raw_us"]) <= 30


@pytest.mark.parametrize("direction", ["out", "in"])
def test_swaps_move_the_blocks(direction):
    for module in backends("swap"):
        problem = swap.make({"pieces": 5, "piece_bytes": 4096, "direction": direction}, CPU)
        run = module.prepare(problem)
        expected = swap.reference(problem)
        assert not torch.equal(swap.result(problem, None).float(), expected)
        run()
        assert agree(swap.result(problem, None), expected, "fp32") == 0.0


def test_copy_on_write_copies_blocks():
    problem = copy_blocks.make({"pieces": 7, "piece_bytes": 64}, CPU)
    expected = copy_blocks.reference(problem)
    assert agree(copy_blocks.result(problem, copy_blocks.prepare(problem)()), expected, "fp32") == 0.0


def test_storage_reads_what_it_wrote(tmp_path):
    for write in (True, False):
        taken, how = storage.seconds(tmp_path, 8192, 6, 3, write=write)
        assert taken > 0
        assert how in ("direct", "buffered")
    assert not list(tmp_path.iterdir())


def test_all_reduce_over_two_processes():
    found = all_reduce.times(2, [1024, 4096], "cpu", repeats=3)
    assert {size: len(seconds) for size, seconds in found.items()} == {1024: 3, 4096: 3}


def test_the_half_width_is_of_the_median():
    assert half_width([1.0] * 20) == 0.0
    assert half_width([1.0, 2.0]) == float("inf")
    assert 0.0 < half_width([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.2, 0.8]) < 0.4


def test_the_plan_starts_with_one_point_of_each_kernel():
    plan = points(TINY_SHARD, TINY, storage=True)
    assert len({point["kernel"] for point in plan[:8]}) == 8
    assert len({str(sorted(point.items())) for point in plan}) == len(plan)


def test_the_shard_of_a_model():
    part = shard("llama-3.1-8b", 2)
    assert part.products == [(3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168), (64128, 4096)]
    with pytest.raises(ValueError, match="cannot be divided"):
        shard("llama-3.1-8b", 3)
    with pytest.raises(ValueError, match="there are"):
        shard("nothing", 1)


TRITON = """
import torch
from calibrate.kernels import decode_triton, paged, swap, swap_zero_copy
from calibrate.kernels.check import agree
cpu = torch.device("cpu")
SHAPES = [(3, 70, 16, 8, 2, 64, "fp32"), (2, 600, 8, 4, 1, 32, "fp32"), (1, 129, 128, 6, 2, 64, "fp16")]
for b, c, s, h, k, d, t in SHAPES:
    p = paged.make(dict(batch=b, context=c, block=s, heads=h, kv_heads=k, head_dim=d, kv_dtype=t), cpu)
    agree(decode_triton.prepare(p)(), paged.reference(p), t)
for direction in ("out", "in"):
    p = swap.make({"pieces": 3, "piece_bytes": 4096, "direction": direction}, cpu)
    expected = swap.reference(p)
    swap_zero_copy.prepare(p)()
    assert agree(swap.result(p, None), expected, "fp32") == 0.0
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed (torch's CPU build leaves it out)")
def test_our_triton_kernels_agree_in_tritons_interpreter():
    done = subprocess.run([sys.executable, "-c", TRITON], cwd=ROOT, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TRITON_INTERPRET": "1"}, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
