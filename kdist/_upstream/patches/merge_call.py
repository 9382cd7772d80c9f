"""The places where one replica's trace stops, and another's begins."""

from collections.abc import Callable
from typing import Any

from tensorflow.python.distribute import mirrored_run

from ..active_batch import active_batch
from ..patching import TENSORFLOW, Patch


def _merge_call(original: Callable[..., Any], context: Any, *args: Any) -> Any:
    """Another replica's turn: the layers' attributes are its own until this one resumes."""
    batch = active_batch()
    attributes = getattr(batch, "attributes", None)
    if attributes is None:
        return original(context, *args)
    kept = attributes.kept()
    try:
        return original(context, *args)
    finally:
        attributes.restore(kept)


PATCHES = (
    Patch(
        owner=mirrored_run._MirroredReplicaContext,
        name="_merge_call",
        replacement=_merge_call,
        why="Replicas share what layers keep in attributes, such as added losses, and take turns"
        " at every collective.",
        canary="test_replicas_share_what_layers_add_to_the_loss",
        seen_in=TENSORFLOW,
    ),
)
