import keras
from kdist.batch_norm.find import batch_norms, unsynchronized_batch_norms
from keras import layers


def nested_model():
    frozen = layers.BatchNormalization(name="frozen")
    frozen.trainable = False
    inner = keras.Sequential(
        [layers.Input((4,)), layers.BatchNormalization(name="inner"), frozen], name="inner_model"
    )
    shared = layers.BatchNormalization(name="shared", synchronized=True)
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.LayerNormalization()(shared(shared(inner(inputs)))))


def test_every_batch_norm_of_a_nested_model_once():
    assert sorted(norm.name for norm in batch_norms(nested_model())) == [
        "frozen",
        "inner",
        "shared",
    ]


def test_frozen_and_synchronized_ones_do_not_train_on_one_replicas_samples():
    assert [norm.name for norm in unsynchronized_batch_norms(nested_model())] == ["inner"]
