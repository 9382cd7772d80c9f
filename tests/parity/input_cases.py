"""How data come in, how steps are run, and where a model is compiled."""

import dataclasses

import keras
import procedures
import samples
import small_models as models
from harness import Case
from keras import optimizers
from optimizer_cases import OPTIMIZERS
from variants import ONE_LEFT, bn, optimized, plain, ramp, two_heads, uneven

CASES = {
    "steps_per_execution_2": dataclasses.replace(
        bn, compile=lambda: {"steps_per_execution": 2}, feed=samples.arrays
    ),
    "steps_per_execution_3_uneven": uneven(
        bn,
        compile=lambda: {"steps_per_execution": 3},
        procedure=procedures.predicted_with_steps,
        feed=samples.dataset,
    ),
    "steps_per_execution_accumulation_clip": uneven(
        optimized(
            lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.1)
        ),
        compile=lambda: {"steps_per_execution": 2},
    ),
    "validation_split": uneven(bn, feed=samples.arrays, fit=lambda: {"validation_split": 0.2}),
    "validation_data": uneven(
        bn,
        feed=samples.arrays,
        fit=lambda: {"validation_data": samples.classes(13), "validation_batch_size": 6},
    ),
    "tensors": uneven(plain, feed=samples.tensors, predicted=True),
    "dataset_uneven": uneven(bn, feed=samples.dataset),
    "dataset_dropping_the_rest": uneven(two_heads, feed=samples.dropping_dataset),
    "dataset_of_ready_batches": uneven(plain, feed=samples.ready_dataset),
    "dataset_endless": uneven(
        plain, feed=samples.endless_dataset, fit=lambda: {"steps_per_epoch": 3}
    ),
    "py_dataset": uneven(plain, feed=samples.py_dataset, weights=ramp),
    "py_dataset_of_arrays": Case(model=models.normalized_inputs, feed=samples.py_dataset),
    "generator": uneven(plain, feed=samples.generator, fit=lambda: {"steps_per_epoch": 4}),
    "generator_of_sparse_rows": uneven(
        Case(model=models.sparse_inputs),
        feed=samples.sparse_generator,
        fit=lambda: {"steps_per_epoch": 4},
    ),
    "steps_per_execution_2_of_sparse_rows": uneven(
        Case(model=models.sparse_inputs),
        feed=samples.sparse_generator,
        fit=lambda: {"steps_per_epoch": 4},
        compile=lambda: {"steps_per_execution": 2},
    ),
    "batch_by_batch": uneven(bn, procedure=procedures.batch_by_batch),
    "batch_by_batch_weighted": uneven(
        plain, procedure=procedures.batch_by_batch, weights=ramp, samples=ONE_LEFT
    ),
    "batch_by_batch_class_weight": Case(procedure=procedures.class_weighted_batches),
    "evaluated_first": uneven(bn, procedure=procedures.evaluated_first),
    "eagerly_uneven": uneven(
        bn, feed=samples.arrays, compile=lambda: {"run_eagerly": True}, samples=ONE_LEFT
    ),
    "compiled_outside_the_scope": uneven(
        plain,
        compiled_in_scope=False,
        optimizer=lambda: optimizers.Adam(0.01, clipnorm=0.1),
        compile=lambda: {
            "metrics": ["accuracy", keras.metrics.SparseCategoricalCrossentropy(name="xent")]
        },
    ),
    "compiled_outside_the_scope_loss_scale": uneven(
        plain, compiled_in_scope=False, optimizer=OPTIMIZERS["LossScaleOptimizer"]
    ),
    "fitted_inside_the_scope": uneven(bn, fitted_in_scope=True),
    # Precision below float64 is compared to within its rounding.
    "float32_head": uneven(Case(model=models.float32_head), tolerance=1e-6),
    "mixed_float16": uneven(bn, policy="mixed_float16", tolerance=2e-2),
}
