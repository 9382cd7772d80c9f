"""Fails where importing kdist changes Keras or TensorFlow, or the first strategy does not.

A program of its own, as it has to begin before kdist is imported.
"""

import contextlib
import importlib
import os
import pkgutil
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: F401
import tensorflow as tf  # noqa: F401

with contextlib.suppress(ModuleNotFoundError):
    import boto3  # noqa: F401 - TensorBoard imports it, and it adds a finder of modules
with contextlib.suppress(ModuleNotFoundError):
    import ray.train  # noqa: F401 - `kdist launch --ray` imports it, and it sets variables

assert not any(name.partition(".")[0] == "kdist" for name in sys.modules)


def owners():
    """Every module of Keras and TensorFlow, and every class in one, by name."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("keras", "tensorflow"):
            found[name] = module
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    found[f"{name}.{value.__qualname__}"] = value
    return found


def attributes():
    """Every attribute of these, by owner's name and its own."""
    return {
        (owner, name): value
        for owner, holder in owners().items()
        for name, value in list(vars(holder).items())
    }


def changed(before, after):
    return sorted(
        key
        for key, value in before.items()
        if after.get(key, value) is not value
        and value is not None  # filled in when it is used, and so is the following
        and "LazyLoader" not in type(value).__name__
    )


before, environment, finders = attributes(), dict(os.environ), list(sys.meta_path)

import kdist  # noqa: E402

for module in pkgutil.walk_packages(kdist.__path__, "kdist."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("kdist"):  # else a peer, such as PyTorch
                raise
for name in kdist.__all__:
    getattr(kdist, name)

imported = attributes()
assert changed(before, imported) == [], changed(before, imported)
assert (dict(os.environ), sys.meta_path) == (environment, finders)

from kdist._upstream.all_patches import ONE_MACHINE, PATCHES, install_for_workers  # noqa: E402

stock = {patch: getattr(patch.owner, patch.name) for patch in PATCHES}
names = {id(holder): name for name, holder in owners().items()}


def check_that_only_these_are_installed(patches):
    for patch in patches:
        assert getattr(patch.owner, patch.name) is not stock[patch], patch.path
    expected = {(names[id(patch.owner)], patch.name) for patch in patches}
    others = {*changed(imported, attributes())} - expected
    assert not others, others


kdist.MirroredStrategy(replicas=1)
check_that_only_these_are_installed(ONE_MACHINE)
once = attributes()
kdist.MirroredStrategy(replicas=1)
assert changed(once, attributes()) == []
install_for_workers()
check_that_only_these_are_installed(PATCHES)
