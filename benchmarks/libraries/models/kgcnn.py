"""kgcnn: networks of graphs; nodes and edges have other first sizes than the batch."""

from typing import Any

import keras
import numpy as np

from ..cases import ROWS, Training, register_case

NODES, EDGES = 5, 8
TYPES = 6


def graphs(*, weighted: bool = False) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    nodes, edges = random.integers(2, NODES + 1, ROWS), random.integers(2, EDGES + 1, ROWS)
    found = {
        "node_number": random.integers(0, TYPES, (ROWS, NODES)),
        "edge_indices": random.integers(0, 100, (ROWS, EDGES, 2)) % nodes[:, None, None],
        "total_nodes": nodes,
        "total_edges": edges,
    }
    if weighted:
        found["edge_weights"] = random.uniform(size=(ROWS, EDGES, 1))
    return found


def inputs(*, weighted: bool = False) -> list[dict[str, Any]]:
    weights = [{"shape": (EDGES, 1), "name": "edge_weights", "dtype": "float64"}] * weighted
    return [
        {"shape": (NODES,), "name": "node_number", "dtype": "int64"},
        *weights,
        {"shape": (EDGES, 2), "name": "edge_indices", "dtype": "int64"},
        {"shape": (), "name": "total_nodes", "dtype": "int64"},
        {"shape": (), "name": "total_edges", "dtype": "int64"},
    ]


def compiled(model: Any, x: dict[str, np.ndarray]) -> Training:
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return Training(model, x, np.random.default_rng(1).normal(size=(ROWS, 1)))


EMBEDDING = {"input_dim": TYPES, "output_dim": 4}
OUTPUT = {"use_bias": [True, True], "units": [4, 1], "activation": ["relu", "linear"]}


def gcn(padded: bool) -> Training:
    from kgcnn.literature.GCN import make_model

    model = make_model(
        inputs=inputs(weighted=True),
        cast_disjoint_kwargs={"padded_disjoint": padded},
        input_node_embedding=EMBEDDING,
        gcn_args={"units": 8, "use_bias": True, "activation": "relu", "pooling_method": "sum"},
        depth=2,
        output_mlp=OUTPUT,
        verbose=0,
    )
    return compiled(model, graphs(weighted=True))


@register_case("kgcnn", "GCN")
def gcn_of_disjoint() -> Training:
    return gcn(False)


@register_case("kgcnn", "GCN, padded_disjoint")
def gcn_of_padded() -> Training:
    return gcn(True)


@register_case("kgcnn", "GIN, GraphBatchNormalization")
def gin() -> Training:
    from kgcnn.literature.GIN import make_model

    model = make_model(
        inputs=inputs(),
        input_node_embedding=EMBEDDING,
        gin_mlp={
            "units": [8, 8],
            "use_bias": True,
            "activation": ["relu", "linear"],
            "use_normalization": True,
            "normalization_technique": "graph_batch",
        },
        last_mlp={"use_bias": [True], "units": [8], "activation": ["relu"]},
        depth=2,
        dropout=0.1,
        output_mlp={"use_bias": True, "units": 1, "activation": "linear"},
        verbose=0,
    )
    return compiled(model, graphs())


@register_case("kgcnn", "GATv2")
def gat() -> Training:
    from kgcnn.literature.GATv2 import make_model

    edges = {"shape": (EDGES, 3), "name": "edge_attributes", "dtype": "float64"}
    given = inputs()
    model = make_model(
        inputs=[given[0], edges, *given[1:]],
        input_node_embedding=EMBEDDING,
        attention_args={
            "units": 4,
            "use_final_activation": False,
            "use_edge_features": True,
            "activation": "relu",
        },
        depth=2,
        output_mlp=OUTPUT,
        verbose=0,
    )
    x = graphs() | {"edge_attributes": np.random.default_rng(2).normal(size=(ROWS, EDGES, 3))}
    return compiled(model, x)
