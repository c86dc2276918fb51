#!/bin/sh
# One session on a GPU box, ten minutes at most: measure the kernels of a model's shard, then say how our Triton kernel
# compares with the copy bandwidth. Run from a checkout; needs torch, numpy and PyYAML. Untried on a GPU so far: it has
# run on CPUs only.
#   sh calibrate/gpu_session.sh [MODEL] [TP] [OUTPUT]
set -eu
model=${1:-llama-3.1-8b} tp=${2:-1} output=${3:-samples.jsonl}
python -m calibrate.bench --model "$model" --tp "$tp" --budget 9min -o "$output"
python -m calibrate.bandwidth "$output"
