"""KerasHub: tasks that compile themselves, on backbones of two layers."""

from typing import Any

import keras
import numpy as np

from ..cases import ROWS, Training, register_case

WORDS, LENGTH, CLASSES, SIZE = 20, 8, 3, 32
HEADS = {"vocabulary_size": WORDS, "num_layers": 2, "num_heads": 2, "hidden_dim": 8}
LONG = {"intermediate_dim": 16, "max_sequence_length": LENGTH}
QUERIES = {
    "vocabulary_size": WORDS,
    "num_layers": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 8,
    "intermediate_dim": 16,
}


def tokens(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, WORDS, (ROWS, LENGTH)).astype("int32")


def padding() -> np.ndarray:
    return np.arange(LENGTH)[None] < np.random.default_rng(1).integers(4, LENGTH + 1, (ROWS, 1))


def text(*, segments: bool = False) -> dict[str, np.ndarray]:
    found = {"token_ids": tokens(), "padding_mask": padding()}
    return found | ({"segment_ids": tokens(2) % 2} if segments else {})


def classes() -> np.ndarray:
    return np.arange(ROWS) % CLASSES


def images() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, SIZE, SIZE, 3)).astype("float32")


def text_classifier(kind: str, *, segments: bool = False, **options: Any) -> Training:
    import keras_hub

    backbone = getattr(keras_hub.models, f"{kind}Backbone")(**HEADS, **LONG, **options)
    model = getattr(keras_hub.models, f"{kind}TextClassifier")(backbone, num_classes=CLASSES)
    return Training(model, text(segments=segments), classes())


@register_case("keras-hub", "BertTextClassifier", built=True)
def bert_text_classifier() -> Training:
    return text_classifier("Bert", segments=True)


@register_case("keras-hub", "RobertaTextClassifier")
def roberta_text_classifier() -> Training:
    return text_classifier("Roberta")


@register_case("keras-hub", "DistilBertTextClassifier")
def distil_bert_text_classifier() -> Training:
    return text_classifier("DistilBert")


@register_case("keras-hub", "AlbertTextClassifier")
def albert_text_classifier() -> Training:
    return text_classifier("Albert", segments=True, embedding_dim=4)


@register_case("keras-hub", "BertMaskedLM")
def bert_masked_lm() -> Training:
    import keras_hub

    model = keras_hub.models.BertMaskedLM(keras_hub.models.BertBackbone(**HEADS, **LONG))
    places = np.sort(
        np.random.default_rng(3).permuted(np.tile(np.arange(8), (ROWS, 1)), axis=1)[:, :2]
    )
    x = text(segments=True) | {"mask_positions": places.astype("int32")}
    weights = np.random.default_rng(4).integers(0, 2, (ROWS, 2)).astype("float32")
    return Training(model, x, tokens(5)[:, :2], {"sample_weight": weights})


def causal_lm(kind: str, **options: Any) -> Training:
    import keras_hub

    backbone = getattr(keras_hub.models, f"{kind}Backbone")(**options)
    model = getattr(keras_hub.models, f"{kind}CausalLM")(backbone)
    weights = padding().astype("float32")
    return Training(model, text(), np.roll(tokens(), -1, 1), {"sample_weight": weights})


@register_case("keras-hub", "GPT2CausalLM", built=True)
def gpt2_causal_lm() -> Training:
    return causal_lm("GPT2", **HEADS, **LONG)


@register_case("keras-hub", "LlamaCausalLM")
def llama_causal_lm() -> Training:
    return causal_lm("Llama", **QUERIES)


@register_case("keras-hub", "GemmaCausalLM", noise=1e-7)  # it normalizes in float32
def gemma_causal_lm() -> Training:
    return causal_lm("Gemma", **QUERIES, head_dim=4)


@register_case("keras-hub", "MixtralCausalLM", dtype="float32")  # its auxiliary loss is float32
def mixtral_causal_lm() -> Training:
    training = causal_lm("Mixtral", **QUERIES, num_experts=3, output_router_logits=True)
    training.model.compile(keras.optimizers.SGD(0.1))
    return training


@register_case("keras-hub", "GemmaCausalLM, LoRA")
def lora_causal_lm() -> Training:
    training = causal_lm("Gemma", **QUERIES, head_dim=4)
    training.model.backbone.enable_lora(2)
    training.model.compile(
        keras.optimizers.AdamW(1e-2, weight_decay=0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    return training


@register_case("keras-hub", "BartSeq2SeqLM")
def bart_seq2seq_lm() -> Training:
    import keras_hub

    model = keras_hub.models.BartSeq2SeqLM(keras_hub.models.BartBackbone(**HEADS, **LONG))
    x = {
        f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in text().items()
    }
    return Training(model, x, tokens(5), {"sample_weight": padding().astype("float32")})


def image_classifier(kind: str, backbone: Any) -> Training:
    import keras_hub

    model = getattr(keras_hub.models, f"{kind}ImageClassifier")(backbone, num_classes=CLASSES)
    return Training(model, images(), classes())


def resnet() -> Any:
    import keras_hub

    return keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 16, 16],  # both have to begin with 64
        stackwise_num_blocks=[1, 1, 1],
        stackwise_num_strides=[1, 2, 2],
        block_type="basic_block",
        image_shape=(SIZE, SIZE, 3),
    )


@register_case("keras-hub", "ResNetImageClassifier", built=True)
def resnet_image_classifier() -> Training:
    return image_classifier("ResNet", resnet())


@register_case("keras-hub", "ViTImageClassifier")
def vit_image_classifier() -> Training:
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(SIZE, SIZE, 3),
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=16,
        dropout_rate=0.1,
    )
    return image_classifier("ViT", backbone)


@register_case("keras-hub", "EfficientNetImageClassifier")
def efficientnet_image_classifier() -> Training:
    import keras_hub

    backbone = keras_hub.models.EfficientNetBackbone(
        stackwise_width_coefficients=[1.0, 1.0],
        stackwise_depth_coefficients=[1.0, 1.0],
        stackwise_kernel_sizes=[3, 3],
        stackwise_num_repeats=[1, 2],
        stackwise_input_filters=[8, 8],
        stackwise_output_filters=[8, 8],
        stackwise_expansion_ratios=[1, 2],
        stackwise_squeeze_and_excite_ratios=[0.0, 0.25],
        stackwise_strides=[1, 2],
        stackwise_block_types=["fused", "unfused"],
        stackwise_force_input_filters=[0, 0],
        stackwise_nores_option=[False, False],
        num_features=16,
        input_shape=(SIZE, SIZE, 3),
    )
    return image_classifier("EfficientNet", backbone)


@register_case("keras-hub", "MobileNetImageClassifier")
def mobilenet_image_classifier() -> Training:
    import keras_hub

    backbone = keras_hub.models.MobileNetBackbone(
        stackwise_expansion=[[8, 16], [16, 16]],
        stackwise_num_blocks=[2, 2],
        stackwise_num_filters=[[8, 8], [8, 8]],
        stackwise_kernel_size=[[3, 3], [5, 5]],
        stackwise_num_strides=[[2, 1], [2, 1]],
        stackwise_se_ratio=[[None, None], [0.25, 0.25]],
        stackwise_activation=[["relu", "relu"], ["hard_swish", "hard_swish"]],
        stackwise_padding=[[1, 1], [2, 2]],
        output_num_filters=16,
        input_activation="hard_swish",
        output_activation="hard_swish",
        input_num_filters=8,
        image_shape=(SIZE, SIZE, 3),
        depthwise_filters=8,
        depthwise_stride=2,
        depthwise_residual=False,
        squeeze_and_excite=0.5,
        last_layer_filter=16,
    )
    return image_classifier("MobileNet", backbone)


@register_case(
    "keras-hub", "RetinaNetObjectDetector", dtype="float32"
)  # its losses' weights are float32
def retinanet_object_detector() -> Training:
    import keras_hub

    encoder = resnet()
    backbone = keras_hub.models.RetinaNetBackbone(
        image_encoder=encoder, min_level=3, max_level=4, use_p5=False, image_shape=(SIZE, SIZE, 3)
    )
    model = keras_hub.models.RetinaNetObjectDetector(
        backbone, num_classes=CLASSES, bounding_box_format="yxyx", pre_logits_num_conv_layers=1
    )
    corners = np.random.default_rng(6).uniform(0, 16, (ROWS, 2, 2))
    model.compile(keras.optimizers.SGD(0.01, clipnorm=10.0))
    sizes = np.random.default_rng(7).uniform(8, 16, (ROWS, 2, 2))
    y = {
        "boxes": np.concatenate([corners, corners + sizes], -1).astype("float32"),
        "labels": np.random.default_rng(8).integers(-1, CLASSES, (ROWS, 2)).astype("float32"),
    }
    # Its `predict` fails in plain Keras, where the number of images is not known.
    return Training(model, images(), y, predicts=False)


@register_case("keras-hub", "DeepLabV3ImageSegmenter")
def deeplab_v3_image_segmenter() -> Training:
    import keras_hub

    backbone = keras_hub.models.DeepLabV3Backbone(
        image_encoder=resnet(),
        spatial_pyramid_pooling_key="P4",
        low_level_feature_key="P2",
        upsampling_size=4,
        dilation_rates=[2, 4],
        projection_filters=4,
        image_shape=(SIZE, SIZE, 3),
    )
    model = keras_hub.models.DeepLabV3ImageSegmenter(backbone, num_classes=CLASSES)
    y = np.random.default_rng(9).integers(0, CLASSES, (ROWS, SIZE, SIZE))
    return Training(model, images(), np.eye(CLASSES)[y])
