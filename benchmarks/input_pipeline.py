"""The input pipeline's race of `make bench` alone, in half a minute.

python benchmarks/input_pipeline.py
"""

from kdist.bench import results
from kdist.bench.driver import run_race
from kdist.bench.races import inputs

race = inputs()
outcomes = run_race(race, rounds=9, announce=lambda _: None)
print(results.table([results.as_json(race, outcomes)]))
