"""The graphs of functions and conditions, which are operations of the graph that calls them."""

from typing import Any

_FUNCTIONS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
}


def inner_graphs(operation: Any) -> list[Any]:
    """Return the graph that a function's call runs, or both graphs of a `tf.cond`.

    A graph's inputs are in the order of the operation's, of which a condition's first is the
    predicate; its outputs begin with the operation's. Empty for other operations.
    """
    names = [operation.get_attr(name).name for name in _FUNCTIONS.get(operation.type, ())]
    return [operation.graph._get_function(name).graph for name in names]
