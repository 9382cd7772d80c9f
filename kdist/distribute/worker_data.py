"""How the batches of a dataset are dealt out to several workers."""

import warnings

import tensorflow as tf

_Policy = tf.data.experimental.AutoShardPolicy


def deal_out(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return the dataset such that each worker gets its part of every batch.

    TensorFlow's own choice, `AUTO`, would give each worker other files where it finds any, and so
    make other batches than one worker has. A policy that the user has chosen stays.
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    if policy == _Policy.AUTO:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = _Policy.DATA
        return dataset.with_options(options)
    if policy in (_Policy.OFF, _Policy.FILE):
        warnings.warn(
            f"the dataset has auto_shard_policy={policy.name}, so its batches are not those of one"
            " worker, and the model depends on the number of workers: use AutoShardPolicy.DATA"
            + (
                ", or let each worker read other data"
                if policy == _Policy.OFF
                else ", with which every worker reads all files"
            ),
            stacklevel=2,
        )
    return dataset
