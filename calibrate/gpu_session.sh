#!/bin/sh
# One session on a GPU box, ten minutes at most: measure the kernels of a model's shard, then say how our Triton kernel
# compares with the copy bandwidth. Needs torch, numpy and PyYAML, in the python3 of the path or the one that PYTHON
# names. A second run with the same output goes on where the first stopped. Untried on a GPU so far: it has run on CPUs
# only.
#   sh calibrate/gpu_session.sh [MODEL] [TP] [OUTPUT]
set -eu
model=${1:-llama-3.1-8b} tp=${2:-1} output=${3:-samples.jsonl}
python=${PYTHON:-python3}
PYTHONPATH=$(cd "$(dirname "$0")/.." && pwd)${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
end=$(($(date +%s) + ${SECONDS_TO_SPEND:-540}))
status=3
# Status 3: a kernel left the GPU unusable for its process; a new one goes on behind that point.
while [ "$status" -eq 3 ]; do
    left=$((end - $(date +%s)))
    [ "$left" -gt 5 ] || break
    status=0
    timeout "$((left + 30))" "$python" -m calibrate.bench --model "$model" --tp "$tp" --budget "${left}s" \
        -o "$output" || status=$?
done
# 124: a kernel hung; every sample before it is in the file.
[ "$status" -eq 0 ] || [ "$status" -eq 3 ] || [ "$status" -eq 124 ] || exit "$status"
"$python" -m calibrate.bandwidth "$output"
