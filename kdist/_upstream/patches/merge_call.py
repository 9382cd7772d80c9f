"""Patch merge calls, where the trace of one replica pauses and that of another continues."""

from collections.abc import Callable
from typing import Any

from tensorflow.python.distribute import mirrored_run

from ..active_batch import active_batch
from ..patching import TENSORFLOW, Patch


def _merge_call(original: Callable[..., Any], context: Any, *args: Any) -> Any:
    """Save the layers' attributes, and restore them when this replica continues."""
    batch = active_batch()
    attributes = getattr(batch, "attributes", None)
    if attributes is None:
        return original(context, *args)
    snapshot = attributes.snapshot()
    try:
        return original(context, *args)
    finally:
        attributes.restore(snapshot)


PATCHES = (
    Patch(
        owner=mirrored_run._MirroredReplicaContext,
        name="_merge_call",
        replacement=_merge_call,
        why="Replicas take turns at every collective, and share the tensors that layers store in"
        " attributes, such as added losses.",
        canary="test_replicas_share_what_layers_add_to_the_loss",
        seen_in=TENSORFLOW,
    ),
)
