"""Only the input pipeline's benchmark of `make bench`, in half a minute.

python benchmarks/input_pipeline.py
"""

from kdist.bench import results
from kdist.bench.benchmarks import inputs
from kdist.bench.driver import run_benchmark

benchmark = inputs()
outcomes = run_benchmark(benchmark, rounds=9, announce=lambda _: None)
print(results.table([results.as_json(benchmark, outcomes)]))
