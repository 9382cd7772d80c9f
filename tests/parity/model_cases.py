"""Sizes of batches, and kinds of models."""

from dataclasses import replace

import procedures
import samples
import small_models as models
from harness import Case
from keras import optimizers
from variants import ONE_LEFT, bn, in_arrays, uneven, unscored

CASES = {
    # Sizes of batches.
    "even": unscored(in_arrays),
    "uneven_last_batch": uneven(in_arrays, predicted=True),
    "fewer_samples_than_replicas": uneven(in_arrays, samples=ONE_LEFT, predicted=True),
    "batch_not_divisible": replace(unscored(in_arrays), batch=7, samples=28, predicted=True),
    "batch_smaller_than_replicas": replace(in_arrays, batch=1, samples=6, predicted=True),
    "one_uneven_batch": replace(unscored(in_arrays), batch=32, samples=5, predicted=True),
    # Kinds of models.
    "sequential": uneven(Case(model=models.sequential, scored=False)),
    "subclassed": Case(model=models.Subclassed, scored=False),
    "subclassed_first_batch_uneven": Case(
        model=models.Subclassed, batch=9, samples=26, predicted=True, feed=samples.arrays
    ),
    "nested": uneven(Case(model=models.nested, scored=False)),
    "shared_layer": uneven(Case(model=models.shared_layer, scored=False)),
    "convolutional": uneven(Case(model=models.convolutional, data=samples.images, scored=False)),
    "spectral_normalization": uneven(Case(model=models.spectral, scored=False)),
    "plain_bn_built": uneven(Case(model=models.plain_normalization, built=True, scored=False)),
    "frozen_normalization": uneven(Case(model=models.frozen_normalization), predicted=True),
    "fine_tuning": uneven(Case(model=models.pretrained, procedure=procedures.fine_tuning)),
    "resumed": uneven(bn, optimizer=lambda: optimizers.Adam(0.01), procedure=procedures.resumed),
}


def kdist_normalization():
    from kdist.layers import SyncBatchNormalization

    return SyncBatchNormalization()


NORMALIZATIONS = {"bn": models.synchronized, "kdist_bn": kdist_normalization}

for _name, _layer in NORMALIZATIONS.items():
    _bn = Case(model=lambda layer=_layer: models.mlp(layer))
    CASES |= {
        _name: unscored(_bn),
        f"{_name}_uneven": uneven(_bn),
        f"{_name}_fewer_samples_than_replicas": uneven(
            unscored(_bn), samples=ONE_LEFT, predicted=True, feed=samples.arrays
        ),
    }
    _masked = Case(
        model=lambda layer=_layer: models.masked_normalization(layer),
        data=samples.series,
        scored=False,
    )
    CASES |= {f"{_name}_masked": _masked, f"{_name}_masked_uneven": uneven(_masked)}
