"""The step as one program: traced once for the global batch, and divided over the replicas.

`docs/design/one-program.md` defines the words, and has an example. The way through the package:

- `partition.partition` traces a step (`trace.py`), plans the step, writes its program, and returns
  the results.
- `plan.GraphPlan.plan_operation` asks the rule of each operation (`operation.py`, `rules/`) for a
  decision: the wanted forms of the inputs, and the placements of the results (`placements.py`).
- `redistribute.choose_conversion` decides how each input gets into its form. `GraphPlan` plans the
  exchanges (`plan_conversion`), and the stage of the operation (`tensor_facts.StageNumber`).
- `stage.Stage.write_operation` writes the operations. `program.Program` writes the calls of the
  stages and the exchanges between them (`collectives.py`, `fixed_order.py`).

Sizes that are known only when a step runs are in `sizes.py` and `rows.py`; variables in
`variables.py` and `divided_variables.py`; bodies without variables in `functionalize.py`.
`validation.py` validates a plan; `costs.py` and `explanation.py` explain a plan to users.
"""
