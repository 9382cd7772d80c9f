"""Random programs divided over replicas are those of the whole batch."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from program_runs import cases, failures_of

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")


@pytest.mark.parametrize(
    ("runs", "validated"),
    [(3, False), (3, True), pytest.param(31, False, marks=pytest.mark.slow)],
)
def test_random_programs(runs, validated, monkeypatch):
    """The programs are the same in each run; `benchmarks.partition_fuzz` draws others."""
    monkeypatch.setenv("KDIST_VERIFY", "1" if validated else "0")
    counts = Counter()

    @settings(max_examples=runs, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(cases())
    def check(case):
        failures = failures_of(*case, counts)
        assert not failures, "\n\n".join(f"{message}\n{program}" for program, message in failures)

    check()
    assert counts["invalid"] < 0.5 * counts["runs"]
    assert counts["unclear"] < 0.1 * counts["compared"]
