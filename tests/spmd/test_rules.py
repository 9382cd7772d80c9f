"""Every sharding rule, against the whole computation."""

import pytest
import rules_of_control
import rules_of_elements
import rules_of_indices
import rules_of_samples
import rules_of_shapes
import rules_of_sums
import rules_of_texts
from kdist.spmd.operation import RULES
from rule_harness import NONE, failures_of, types_of

pytestmark = pytest.mark.usefixtures("without_graph_optimizer_in_module")

FAMILIES = {
    "elementwise": rules_of_elements.elementwise,
    "partials": rules_of_elements.partials,
    "reductions": rules_of_sums.reductions,
    "matmul": rules_of_sums.contractions,
    "sampled_losses": rules_of_sums.sampled_losses,
    "random": rules_of_sums.random,
    "shapes": rules_of_shapes.shapes,
    "slices": rules_of_shapes.slices,
    "indexing": rules_of_indices.indexing,
    "ragged": rules_of_texts.ragged,
    "samples": rules_of_samples.samples,
    "control_flow": rules_of_control.control,
    "state": rules_of_control.state,
}

# Rules that do not divide anything, and why.
UNDIVIDED = {
    "Const": "has no rows",
    "EmptyTensorMap": "has no rows",
    "LookupTableSizeV2": "has no rows",
    "NoOp": "has no result",
    "Placeholder": "is an input",
    "ReadVariableOp": "has no rows",
    "StatelessMultinomial": "draws the classes of all rows",
    "VarIsInitializedOp": "has no rows",
    "VariableShape": "has no rows",
}
# Rules that are tested apart, or by all rows.
WITHOUT_ROW = {  # the kernels, variables that are divided and cuDNN have tests of their own
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "AssignVariableOp",
    *(f"TensorScatter{kind}" for kind in ("Add", "Max", "Min", "Sub")),
    "CudnnRNNBackpropV3",
    "CudnnRNNV3",
    "Placeholder",
    "kernel:look_up",
    "kernel:take_rows",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_rules(family):
    failures = failures_of(FAMILIES[family]())
    assert not failures, "\n\n".join(failures)


def test_every_rule_has_a_row():
    rows = [row for make in FAMILIES.values() for row in make()]
    assert set(RULES) - types_of(rows) == WITHOUT_ROW
    divided = types_of(row for row in rows if row.divided != NONE)
    assert set(RULES) - divided - WITHOUT_ROW == set(UNDIVIDED) - WITHOUT_ROW
