import doctest
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdist import scale_learning_rate
from kdist.errors import UserError
from kdist.optimizers import scaling

rates = st.floats(min_value=1e-8, max_value=1e3)
counts = st.integers(min_value=1, max_value=4096)
rules = st.sampled_from(["linear", "sqrt", "none"])


@given(rate=rates, rule=rules)
def test_a_single_replica_keeps_its_rate(rate, rule):
    assert scale_learning_rate(rate, replicas=1, rule=rule) == rate


@given(rate=rates, replicas=st.integers(min_value=1, max_value=64))
def test_linear_makes_one_step_go_as_far_as_one_step_of_each_replica(rate, replicas):
    gradients = np.random.default_rng(replicas).normal(size=replicas)
    one_by_one = 0.0
    for gradient in gradients:
        one_by_one -= rate * gradient
    together = -scale_learning_rate(rate, replicas=replicas) * gradients.mean()
    assert math.isclose(one_by_one, together, rel_tol=1e-9, abs_tol=1e-9 * rate)


@given(rate=rates, replicas=counts)
def test_sqrt_keeps_the_variance_of_an_update(rate, replicas):
    variance_of_one_batch = 3.0
    variance_of_the_mean = variance_of_one_batch / replicas
    scaled = scale_learning_rate(rate, replicas=replicas, rule="sqrt")
    assert math.isclose(
        scaled**2 * variance_of_the_mean, rate**2 * variance_of_one_batch, rel_tol=1e-12
    )


@pytest.mark.parametrize("base", [0, -0.1, math.nan, math.inf, "0.1", None, True])
def test_a_base_that_is_no_learning_rate_is_refused(base):
    with pytest.raises(UserError, match=r"base is .* rate that suits one replica"):
        scale_learning_rate(base, replicas=2)


@pytest.mark.parametrize("replicas", [0, -1, 1.5, 2.0, "2", True])
def test_replicas_that_are_no_count_are_refused(replicas):
    with pytest.raises(UserError, match=r"replicas is .*num_replicas_in_sync"):
        scale_learning_rate(0.1, replicas=replicas)


@pytest.mark.parametrize("rule", ["cubic", "Linear", None, 1])
def test_an_unknown_rule_is_refused_by_naming_the_known_ones(rule):
    with pytest.raises(UserError, match=r"rule is .*linear, sqrt, none"):
        scale_learning_rate(0.1, replicas=2, rule=rule)


def test_the_examples_in_the_docstring():
    assert doctest.testmod(scaling).failed == 0


def test_scaling_does_not_import_a_framework():
    code = "import sys, kdist; kdist.scale_learning_rate(1, replicas=2); "
    code += "sys.exit(bool({'tensorflow', 'keras'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(rate=rates, reference=counts, replicas=counts, rule=rules)
def test_batches_scale_as_their_ratio_of_replicas_does(rate, reference, replicas, rule):
    by_batch = scale_learning_rate(
        rate, global_batch=reference * replicas, reference_batch=reference, rule=rule
    )
    assert by_batch == scale_learning_rate(rate, replicas=replicas, rule=rule)


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"global_batch": 8},
        {"reference_batch": 8},
        {"replicas": 2, "global_batch": 8, "reference_batch": 8},
        {"global_batch": 8, "reference_batch": 0},
        {"global_batch": 8.0, "reference_batch": 8},
    ],
)
def test_missing_or_doubled_counts_are_refused(counts):
    with pytest.raises(UserError, match="pass"):
        scale_learning_rate(0.1, **counts)


def test_every_optimizer_of_keras_has_a_rule_or_an_error_that_asks_for_one():
    import kdist.optimizers
    import keras

    known = {"SGD": "linear", "LARS": "linear"} | dict.fromkeys(
        ("Adam", "AdamW", "Nadam", "RMSprop", "Lamb", "NovoGrad"), "sqrt"
    )
    for name, rule in known.items():
        source = kdist.optimizers if hasattr(kdist.optimizers, name) else keras.optimizers
        optimizer = getattr(source, name)()
        assert (
            scaling.learning_rate_rule_of(optimizer) == scaling.learning_rate_rule_of(name) == rule
        )
        assert scaling.learning_rate_rule_of(keras.optimizers.LossScaleOptimizer(optimizer)) == rule
    for unknown in (keras.optimizers.Ftrl(), "muon", None):
        with pytest.raises(UserError, match='pass rule="linear", "sqrt" or "none"'):
            scaling.learning_rate_rule_of(unknown)
