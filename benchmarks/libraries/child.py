"""Trains the models of one library, and prints a line of JSON for each."""

import argparse
import importlib
import json
import os
import pkgutil
import traceback
from collections.abc import Sequence
from typing import Any

REPLICAS = (1, 2, 3)
EQUAL = {"float64": 1e-9, "float32": 1e-4}
GROWTH = 20.0  # a difference up to this times that of noise in the initial weights is rounding
CHAOS = 1e-2  # where rounding may be more than this, nothing is shown


def main() -> None:
    """Print the names of a library's models, or train them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--model", nargs="+")
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--replicas", nargs="*", type=int, default=REPLICAS)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    import kdist

    kdist.MirroredStrategy(replicas=max(REPLICAS))  # before TensorFlow starts: splits the CPU
    from . import models
    from .cases import CASES

    for module in pkgutil.iter_modules(models.__path__):
        importlib.import_module(f"{models.__name__}.{module.name}")
    own = [one for one in CASES if one.library == options.library]
    if options.names:
        print(json.dumps([one.name for one in own]))
        return
    for one in own:
        if options.model is None or one.name in options.model:
            print(
                json.dumps({"model": one.name} | _compare(one, options.replicas, options.trace)),
                flush=True,
            )


def _compare(one: Any, counts: Sequence[int], trace: bool) -> dict[str, Any]:
    import kdist

    from .cases import difference, train

    try:
        one.make()  # what it imports may draw random numbers
        plain = train(one)
    except Exception as error:
        return {"plain": _line(error, trace)}
    noise = None
    found: list[str] = []
    names: list[str] = []
    wrong = False
    ratios: list[float] = []
    warned: list[str] = []
    for replicas in counts:
        try:
            result = train(one, kdist.MirroredStrategy(replicas=replicas))
        except Exception as error:
            found.append(_line(error, trace))
            wrong = True
            continue
        warned += [text for text in result.warned if text not in [*plain.warned, *warned]]
        if replicas == 2:
            ratios = [
                result.first_step / plain.first_step,
                result.second_epoch_step / plain.second_epoch_step,
            ]
        gap, name = difference(plain, result)
        if gap <= EQUAL[one.dtype]:
            found.append("equal")
            continue
        names.append(f"{replicas} replicas: {gap:.2g} in {name}")
        if noise is None:
            noise = difference(plain, train(one, noise=one.noise))
            names.append(f"noise: {noise[0]:.2g} in {noise[1]}")
        if gap <= GROWTH * noise[0] < CHAOS:
            found.append(f"rounding: {gap:.0e}")
        else:
            found.append(f"**off by {gap:.1g}**")
            wrong = True
    return {
        "dtype": one.dtype,
        "built": one.built,
        "found": found,
        "where": names,
        "wrong": wrong,
        "ratios": ratios,
        "warned": warned,
    }


def _line(error: Exception, trace: bool) -> str:
    if trace:
        traceback.print_exception(error)
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:200]}"


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
