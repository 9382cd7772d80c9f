"""Keras Recommenders: ranking, retrieval with the negatives of a batch, and lists."""

from typing import Any

import keras
import numpy as np

from ..cases import ROWS, Training, register_case

FEATURES, USERS, ITEMS, LIST = 4, 6, 8, 5


def features() -> np.ndarray:
    return np.random.default_rng(0).integers(0, USERS, (ROWS, FEATURES))


def ratings() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(ROWS, 1))


@register_case("keras-rs", "FeatureCross", built=True)
def feature_cross() -> Training:
    import keras_rs

    inputs = keras.Input((FEATURES,), dtype="int64")
    x0 = keras.layers.Flatten()(keras.layers.Embedding(USERS, 4)(inputs))
    x = keras_rs.layers.FeatureCross(projection_dim=3)(x0, x0)
    x = keras_rs.layers.FeatureCross(kernel_regularizer="l2")(x0, x)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(8, "relu")(x)))
    model.compile("adagrad", "mse", metrics=[keras.metrics.RootMeanSquaredError()])
    return Training(model, features(), ratings())


def dot_interaction(**options: bool) -> Training:
    import keras_rs

    inputs = keras.Input((FEATURES,), dtype="int64")
    embedded = keras.layers.Embedding(USERS, 4)(inputs)
    each = [embedded[:, place] for place in range(FEATURES)]
    x = keras_rs.layers.DotInteraction(**options)(each)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(x))
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy", metrics=["AUC", "accuracy"])
    return Training(model, features(), (ratings() > 0).astype("float64"))


@register_case("keras-rs", "DotInteraction")
def dot_interaction_gathered() -> Training:
    return dot_interaction(self_interaction=True)


@register_case("keras-rs", "DotInteraction, skip_gather")
def dot_interaction_masked() -> Training:
    return dot_interaction(skip_gather=True)


def two_towers(*, negatives: int = 0, corrects: bool = False, hits: bool = False) -> Training:
    import keras_rs

    class TwoTowers(keras.Model):
        """As in keras.io's examples of retrieval; the batch's other items are the negatives."""

        def __init__(self) -> None:
            super().__init__()
            self.query = keras.Sequential([keras.layers.Embedding(USERS, 4), keras.layers.Dense(4)])
            self.candidate = keras.Sequential(
                [keras.layers.Embedding(ITEMS, 4), keras.layers.Dense(4)]
            )
            self.retrieval = keras_rs.layers.BruteForceRetrieval(k=3, return_scores=True)
            self.correction = keras_rs.layers.SamplingProbabilityCorrection()
            self.hits = keras_rs.layers.RemoveAccidentalHits()
            self.mining = keras_rs.layers.HardNegativeMining(max(negatives, 1))
            self.loss_fn = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")

        def build(self, input_shape: Any) -> None:
            self.query.build(input_shape)
            self.candidate.build(input_shape)
            self.retrieval.candidate_embeddings = self.add_weight(
                shape=(ITEMS, 4), initializer="normal", trainable=False, name="candidates"
            )
            self.retrieval.candidate_ids = None
            self.retrieval.built = True
            self.built = True

        def call(self, inputs: Any, training: bool = False) -> Any:
            query = self.query(inputs)
            result = {"query_embeddings": query}
            if not training:
                result["predictions"] = keras.ops.top_k(
                    query @ keras.ops.transpose(self.retrieval.candidate_embeddings), 3
                )[1]
            return result

        def compute_loss(
            self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool = True
        ) -> Any:
            query = y_pred["query_embeddings"]
            candidate = self.candidate(y["item"])
            logits = keras.ops.matmul(query, keras.ops.transpose(candidate))
            rows = keras.ops.shape(logits)[0]
            labels = keras.ops.eye(rows, dtype=logits.dtype)
            if corrects:
                logits = self.correction(logits, y["probability"])
            if hits:
                logits = self.hits(logits, labels, y["item"])
            if negatives:
                logits, labels = self.mining(logits, labels)
            return self.loss_fn(labels, logits)

    model = TwoTowers()
    model.build((None,))
    model.compile(keras.optimizers.Adagrad(0.1))
    random = np.random.default_rng(2)
    y = {"item": random.integers(0, 3, ROWS), "probability": random.uniform(0.1, 1, ROWS)}
    return Training(model, features()[:, 0], y)


@register_case("keras-rs", "two towers")
def two_towers_alone() -> Training:
    return two_towers()


@register_case("keras-rs", "two towers, RemoveAccidentalHits, SamplingProbabilityCorrection")
def two_towers_corrected() -> Training:
    return two_towers(corrects=True, hits=True)


@register_case("keras-rs", "two towers, HardNegativeMining")
def two_towers_mined() -> Training:
    return two_towers(negatives=1)


def lists(loss: str) -> Training:
    import keras_rs

    user, item = keras.Input((), dtype="int64"), keras.Input((LIST,), dtype="int64")
    queries = keras.layers.RepeatVector(LIST)(keras.layers.Embedding(USERS, 4)(user))
    x = keras.layers.Concatenate()([queries, keras.layers.Embedding(ITEMS, 4)(item)])
    x = keras.layers.Dense(1)(keras.layers.Dense(8, "relu")(x))
    model = keras.Model([user, item], keras.layers.Reshape((LIST,))(x))
    model.compile(
        keras.optimizers.Adam(0.05),
        getattr(keras_rs.losses, loss)(),
        metrics=[
            keras_rs.metrics.NDCG(k=3, name="ndcg"),
            keras_rs.metrics.MeanReciprocalRank(name="mrr"),
            keras_rs.metrics.MeanAveragePrecision(name="map"),
            keras_rs.metrics.PrecisionAtK(k=2, name="precision"),
        ],
    )
    random = np.random.default_rng(3)
    x_lists = [features()[:, 0], random.integers(0, ITEMS, (ROWS, LIST))]
    return Training(model, x_lists, random.integers(0, 3, (ROWS, LIST)).astype("float64"))


@register_case("keras-rs", "PairwiseHingeLoss, ranking metrics")
def pairwise_hinge() -> Training:
    return lists("PairwiseHingeLoss")


@register_case("keras-rs", "PairwiseLogisticLoss, ranking metrics")
def pairwise_logistic() -> Training:
    return lists("PairwiseLogisticLoss")


@register_case("keras-rs", "ListMLELoss, ranking metrics")
def list_mle() -> Training:
    return lists("ListMLELoss")
