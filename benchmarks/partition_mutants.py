"""Break every sharding rule on purpose, and see whether the tests of rules find it.

    python -m benchmarks.partition_mutants                  # all rules: about an hour on two cores
    python -m benchmarks.partition_mutants --rules Sum Mean
    python -m benchmarks.partition_mutants --code           # code beside the rules: minutes

A mutant is a rule with decisions that are changed in one of four ways: a divided result, or a
result that has to be added up, is declared whole on every replica; an input that has to be gathered
is taken as it is; or a shape with the rows of a replica gets the rows of the batch. The rows of
`tests/spmd` that test the rule compute with the mutant, which survives if all results are right.
Prints the survivors and the number of mutants that changed a decision.

With `--code`, mutants are functions for variables in bodies (`functionalize.py`), effects, stages,
exchanges, gathers of divided weights and `rematerialization.py`. For each mutant, the tests of such
steps run.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from .measure import ROOT

# Mutants without effect, as the changed part is not used.
_ALIASES, _OWN_SHAPE = "its results are its inputs", "it writes its shape itself"
_SHAPES = "a shape has the rows of the batch"
_DRAWS = """
    StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2
    StatelessRandomGammaV3 StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomPoisson
    StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
    StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2
    StatelessTruncatedNormal StatelessTruncatedNormalV2
"""
UNUSED = {
    ("IdentityN", "rows are taken for the whole"): _ALIASES,
    ("Range", _SHAPES): _OWN_SHAPE,
    **dict.fromkeys([(name, _SHAPES) for name in _DRAWS.split()], _OWN_SHAPE),
}


def main() -> int:
    """Print the survivors; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", nargs="+", help="only the rules of these operations")
    parser.add_argument("--code", action="store_true", help="code beside the rules, instead")
    options = parser.parse_args()
    if options.code:
        return _mutate_code()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(ROOT / "tests" / "spmd"))
    import logging

    import kdist
    import tensorflow as tf
    import test_rules
    from kdist.spmd.operation import RULES

    logging.getLogger("kdist").setLevel("ERROR")  # operations that are computed whole are right
    kdist.MirroredStrategy(replicas=3)  # makes logical CPUs, before TensorFlow starts
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    unknown = sorted(set(options.rules or ()) - set(RULES))
    if unknown:
        parser.error(f"no rule for {', '.join(unknown)}")
    rows = [row for make in test_rules.FAMILIES.values() for row in make()]
    killed, survivors = 0, []
    for name in options.rules or sorted(RULES):
        rule_rows = [row for row in rows if name in row.types.split()]
        for kind, change in list_mutations().items():
            if (name, kind) in UNUSED:
                continue
            is_killed = _outcome(RULES, name, change, rule_rows)
            if is_killed is False:
                survivors.append(f"{name}: {kind}")
                print(f"survived: {survivors[-1]}", flush=True)
            killed += is_killed is True
    print(f"{killed + len(survivors)} mutants, {len(survivors)} survived")
    return 1 if survivors else 0


_MUTANT = "PARTITION_MUTANT"  # the environment variable that names the mutant of a test run
_TESTS = [
    *("test_effects.py", "test_collectives.py", "test_pure_bodies.py", "test_validation.py"),
    *("test_divided_variables.py", "test_copied_variables.py", "test_programs.py"),
    *("test_divided_weights.py", "../parity/test_remat.py", "test_random_programs.py"),
]


def list_code_mutants() -> dict[str, tuple[list[Any], str, Any]]:
    """Return functions to break: by title, the owners, the name, and the broken function."""
    from kdist.spmd import (
        collectives,
        functionalize,
        functions,
        plan,
        program,
        reduction,
        rematerialization,
        tensor_facts,
    )

    original = {
        "gather": collectives.Collectives.gather,
        "scatter": collectives.Collectives.scatter_sums,
        "copy": functions.copy_operation,
        "effects": functionalize.effects_of,
        "exchange": program.Program._write_exchange,
        "outer weight": program.ProgramStage.outer_weight,
    }

    def without_skip(_: Any, inputs: Sequence[Any], state: Any) -> list[Any]:
        return [state.values[inputs[0].key][:3]]

    def least(self: Any, stacked: Any, _: Any) -> Any:
        is_maximum = self is reduction.MAXIMUM
        return (reduction.MINIMUM if is_maximum else self).reduce(stacked, 0)

    def reversed_rows(self: Any, parts: Sequence[Any], axis: int) -> Any:
        return original["gather"](self, parts[::-1], axis)

    def of_others(self: Any, values: Any) -> Any:
        return [parts[::-1] for parts in original["scatter"](self, values)]

    def gathered_before(self: Any, sent: Any) -> None:
        original["exchange"](self, sent)
        wholes = self.__dict__.setdefault("first_wholes", {})
        for key, handle, _ in _read_weights(self, sent):
            self._exchanged[key] = wholes.setdefault(handle, self._exchanged[key])

    def read_again(self: Any, sent: Any) -> None:
        original["exchange"](self, sent)
        for key, handle, shard in _read_weights(self, sent):
            parts = [
                functionalize.read_variable(handle.deref(), part) for part in self.inputs[handle]
            ]
            self._exchanged[key] = self.collectives.gather(parts, shard.axis)

    def of_first_round(self: Any, tensor: Any, _: int) -> Any:
        rounds = [at for at, weights in self.plan.weights.items() if tensor.ref() in weights]
        return original["outer weight"](self, tensor, min(rounds))

    def of_next_seed(graph: Any, op: Any, given: Sequence[Any]) -> Any:
        is_draw = op.type == "StatelessRandomGetKeyCounter"
        return original["copy"](graph, op, [given[0] + 1] if is_draw else given)

    changes = {**functionalize._COUNTERPARTS, "RngReadAndSkip": without_skip}
    stage, exchange = program.ProgramStage, collectives.Collectives
    return {
        "changes in a body are lost": ([functionalize], "_find_changed", lambda *_: []),
        "changes in a loop's condition are lost": (
            [functionalize],
            "_changes_variables",
            lambda *_: False,
        ),
        "branches change the same values": (
            [functionalize._State],
            "make_branch_state",
            lambda self, *_: self,
        ),
        "draws leave the generator as it is": ([functionalize], "_COUNTERPARTS", changes),
        "branches that may fail are run both": ([functionalize], "_cannot_fail", lambda *_: True),
        "no rows of a table are left out": (
            [functionalize],
            "_mask_wrong_segments",
            lambda ids, *_: ids,
        ),
        "copies wait for nothing": ([functions, functionalize, plan], "hold_back", lambda *_: None),
        "nothing runs once": (
            [tensor_facts],
            "effects_of",
            lambda *o: (False, original["effects"](*o)[1]),
        ),
        "what runs once changes nothing": ([plan.GraphPlan], "_copy_states", lambda *_: None),
        "each shard changes variables": ([program.Program], "_stage_for", _stage_alone),
        "batches stay in the order of replicas": (
            [stage],
            "_restore_order",
            lambda _, rows, __: rows,
        ),
        "the least is taken for the most": ([reduction.Elementwise], "combine", least),
        "rows are gathered the other way round": ([exchange], "gather", reversed_rows),
        "one part is taken for the sum": (
            [exchange],
            "_sum_parts",
            lambda o, parts: o.copy_to_devices(parts[0]),
        ),
        "replicas get the rows of others": ([exchange], "scatter_sums", of_others),
        "a weight is gathered once for all reads": (
            [program.Program],
            "_write_exchange",
            gathered_before,
        ),
        "a weight is read when it is gathered": ([program.Program], "_write_exchange", read_again),
        "a gathered weight is kept": ([stage], "outer_weight", of_first_round),
        "gathers wait for no stage": ([program.Program], "_find_ends_before", lambda *_: []),
        "draws are drawn again": ([rematerialization], "copy_operation", of_next_seed),
        "nothing is computed again": ([rematerialization], "_compute_again", lambda *_: {}),
    }


def _read_weights(program: Any, sent: Any) -> list[tuple[Any, Any, Any]]:
    """Return gathered weights that are values of variables: result, handle and placement."""
    weights = [gathered for gathered in sent if getattr(gathered, "is_weight", False)]
    return [
        (
            gathered,
            program.plan.resolve_alias(gathered.tensor.op.inputs[0]).ref(),
            program.plan.placement_of(gathered.tensor),
        )
        for gathered in weights
        if gathered.tensor.op.type == "ReadVariableOp"
    ]


def _stage_alone(program: Any, planned: Any) -> Any:
    return program.stage_at(planned.stage)


def pytest_configure() -> None:
    """Break the function that the environment names, in a test run with this plugin."""
    if name := os.environ.get(_MUTANT):
        owners, function, broken = list_code_mutants()[name]
        for owner in owners:
            getattr(owner, function)  # An error if the code has no such function any more.
            setattr(owner, function, broken)


def _mutate_code() -> int:
    command = [sys.executable, "-m", "pytest", "-x", "-m", "not slow"]
    command += ["-p", "benchmarks.partition_mutants", *(f"tests/spmd/{name}" for name in _TESTS)]
    mutants = list_code_mutants()
    survivors = [
        name
        for name in mutants
        if not subprocess.run(
            command, cwd=ROOT, env={**os.environ, _MUTANT: name}, stdout=subprocess.DEVNULL
        ).returncode
    ]
    for name in survivors:
        print(f"survived: {name}")
    print(f"{len(mutants)} mutants, {len(survivors)} survived")
    return 1 if survivors else 0


def list_mutations() -> dict[str, Callable[[Any, Any], Any]]:
    """Return the ways to change a decision, each a function of the operation and the decision."""
    from kdist.spmd.operation import LOCAL, LocalSizes
    from kdist.spmd.placements import REPLICATE, Partial, Shard

    def results(kind: type) -> Callable[[Any, Any], Any]:
        def change(_: Any, decision: Any) -> Any:
            results = [REPLICATE if isinstance(p, kind) else p for p in decision.output_placements]
            return dataclasses.replace(decision, output_placements=results)

        return change

    def ungathered(op: Any, decision: Any) -> Any:
        forms = [
            LOCAL if form == REPLICATE and isinstance(p, Shard | Partial) else form
            for p, form in zip(op.placements, decision.input_forms, strict=True)
        ]
        return dataclasses.replace(decision, input_forms=forms)

    def global_sizes(_: Any, decision: Any) -> Any:
        forms = [
            REPLICATE if isinstance(form, LocalSizes) else form for form in decision.input_forms
        ]
        return dataclasses.replace(decision, input_forms=forms)

    return {
        "sums are not added up": results(Partial),
        "rows are taken for the whole": results(Shard),
        "what is not whole is taken as it is": ungathered,
        _SHAPES: global_sizes,
    }


def _outcome(
    rules: dict[str, Any], name: str, change: Callable[[Any, Any], Any], rows: Sequence[Any]
) -> bool | None:
    """Return whether a mutant is found; `None` if it changes nothing."""
    original = rules[name]
    changed = False

    def mutant(op: Any) -> Any:
        nonlocal changed
        decision = original(op)
        if decision is None:
            return None
        mutated = change(op, decision)
        changed |= (mutated.output_placements, mutated.input_forms) != (
            decision.output_placements,
            decision.input_forms,
        )
        return mutated

    with mock.patch.dict(rules, {name: mutant}):
        for row in rows:
            if not _is_right(row):
                return True
    return False if changed else None


def _is_right(row: Any) -> bool:
    from rule_harness import COUNTS, STATIC, Program

    for is_static in (False, True):
        if is_static and not row.static:
            continue
        counts = [STATIC] if is_static else COUNTS if row.empty else COUNTS[:-1]
        try:
            program = Program([row], counts, is_static)
            if program.wrong_values():
                return False
        except Exception:  # a step that fails is found, too
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
