"""BayesFlow: approximators, trained on an OfflineDataset; some compute in float32 alone."""

from typing import Any

import keras
import numpy as np

from ..cases import BATCH_SIZE, ROWS, Training, register_case

SETS = {"summary_dim": 3, "dropout": 0.05}
SUBNET = {"widths": (8, 8)}


def simulated() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    theta = random.normal(size=(ROWS, 2))
    return {"theta": theta, "x": theta[:, None] + random.normal(size=(ROWS, 6, 2))}


def normal() -> Any:
    """Return BayesFlow's base distribution, whose moments are float32, in the model's precision."""
    import bayesflow

    class Normal(bayesflow.distributions.DiagonalNormal):
        def build(self, input_shape: Any) -> None:
            super().build(input_shape)
            self._mean = keras.ops.cast(self._mean, self.dtype)
            self._std = keras.ops.cast(self._std, self.dtype)

    return Normal()


def training(model: Any, adapter: Any, data: dict[str, np.ndarray]) -> Training:
    import bayesflow

    dataset = bayesflow.datasets.OfflineDataset(data, BATCH_SIZE, adapter, shuffle=False)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.5))
    return Training(
        model, None, fit={"dataset": dataset}, evaluates=False, predicts=False, batched=True
    )


def continuous(network: Any, summary: Any = None, *, standardize: Any = "all") -> Training:
    import bayesflow

    adapter = bayesflow.Adapter().convert_dtype("float64", keras.config.floatx())
    data = simulated()
    if summary is None:
        data["x"] = data["x"].mean(1)
        adapter = adapter.rename("x", "inference_conditions")
    else:
        adapter = adapter.rename("x", "summary_variables")
    adapter = adapter.rename("theta", "inference_variables")
    model = bayesflow.ContinuousApproximator(
        inference_network=network,
        summary_network=summary,
        adapter=adapter,
        standardize=standardize,
    )
    return training(model, adapter, data)


@register_case("bayesflow", "CouplingFlow, standardized")
def coupling_flow() -> Training:
    import bayesflow

    return continuous(
        bayesflow.networks.CouplingFlow(depth=2, subnet_kwargs=SUBNET, base_distribution=normal())
    )


@register_case("bayesflow", "CouplingFlow of splines, DeepSet")
def spline_flow() -> Training:
    import bayesflow

    flow = bayesflow.networks.CouplingFlow(
        depth=1, transform="spline", subnet_kwargs=SUBNET, base_distribution=normal()
    )
    sets = bayesflow.networks.DeepSet(**SETS, embed_dim=8, mlp_widths=(8,), num_heads=2)
    return continuous(flow, sets)


@register_case("bayesflow", "FlowMatching, SetTransformer")
def flow_matching() -> Training:
    import bayesflow

    sets = bayesflow.networks.SetTransformer(**SETS, embed_dims=(8, 8), num_heads=(2, 2))
    return continuous(
        bayesflow.networks.FlowMatching(subnet_kwargs=SUBNET, base_distribution=normal()), sets
    )


@register_case("bayesflow", "FlowMatching, optimal transport", dtype="float32")
def flow_matching_transported() -> Training:
    import bayesflow

    network = bayesflow.networks.FlowMatching(
        subnet_kwargs=SUBNET, base_distribution=normal(), use_optimal_transport=True
    )
    return continuous(network)


@register_case("bayesflow", "DiffusionModel", dtype="float32")
def diffusion_model() -> Training:
    import bayesflow

    return continuous(bayesflow.networks.DiffusionModel(subnet_kwargs=SUBNET))


@register_case("bayesflow", "ConsistencyModel", dtype="float32")
def consistency_model() -> Training:
    import bayesflow

    network = bayesflow.networks.ConsistencyModel(total_steps=12, subnet_kwargs=SUBNET)
    return continuous(network, standardize="inference_variables")


@register_case("bayesflow", "ModelComparisonApproximator, DeepSet", dtype="float32")
def model_comparison() -> Training:
    import bayesflow

    adapter = (
        bayesflow.Adapter()
        .convert_dtype("float64", keras.config.floatx())
        .rename("x", "summary_variables")
    )
    adapter = adapter.rename("model", "inference_variables")
    model = bayesflow.approximators.ModelComparisonApproximator(
        num_models=2,
        classifier_network=bayesflow.networks.MLP(widths=(8, 8)),
        summary_network=bayesflow.networks.DeepSet(
            **SETS, embed_dim=8, mlp_widths=(8,), num_heads=2
        ),
        adapter=adapter,
        standardize="summary_variables",
    )
    models = np.eye(2)[np.arange(ROWS) % 2]
    return training(model, adapter, {"x": simulated()["x"], "model": models})


@register_case("bayesflow", "RatioApproximator", dtype="float32")
def ratio() -> Training:
    import bayesflow

    adapter = (
        bayesflow.Adapter()
        .convert_dtype("float64", keras.config.floatx())
        .rename("theta", "inference_variables")
    )
    adapter = adapter.rename("x", "inference_conditions")
    model = bayesflow.approximators.RatioApproximator(
        inference_network=bayesflow.networks.MLP(widths=(8, 8)), adapter=adapter, K=1
    )
    data = simulated()
    return training(model, adapter, data | {"x": data["x"].mean(1)})
