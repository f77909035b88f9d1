"""Speed and memory, as ratios measured within one run. `python -m benchmarks [NAME ...]`; results in `results/`."""
