"""Sharding rules: a function for each kind of operation decides how the operation is divided.

To add a rule:

1. Write a function below `@rule("OpType", ...)` in the file of its family; for many types a name in
   a table is enough (`UNARY`, `_ROWS`, `_BATCHED`). Return a `Decision`, or `None` if not certain.
2. Where the traced shape of a result has unknown sizes, set the sizes with `op.set_dims`.
3. Ask for inputs with equal rows by `op.rows_form`: only where unequal rows are an error.
4. Add a row to `tests/spmd/rules_of_*.py`: it computes the operation divided, and whole.

A stateful type needs its effect in `op_types.py`. A type with sizes in its result needs a reader in
`size_reader.py`. A type that takes a variable needs a counterpart in `functionalize.py`, and a
product its cost in `costs.py`. Importing this package registers all rules.
"""

from . import (  # noqa: F401
    control_flow,
    elementwise,
    indexing,
    lists,
    matmul,
    ragged,
    random,
    recurrent,
    reductions,
    samples,
    shapes,
    slices,
    state,
)
