"""TensorFlow's iterators that read ahead on several devices, with functions traced once."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, multi_device_iterator_ops, prefetch_op
from tensorflow.python.data.util import structure
from tensorflow.python.distribute import device_util, input_lib
from tensorflow.python.framework import type_utils
from tensorflow.python.ops import functional_ops, gen_dataset_ops


class PrefetchedDataset(input_lib.DistributedDataset):
    """A data set of a worker, with an iterator on each device that reads ahead.

    TensorFlow traces six functions for each device whenever the data are iterated over. Here all
    iterators over batches of the same types and shapes share the traced functions.
    """

    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        (worker,), (dataset,) = self._input_workers.worker_devices, self._cloned_datasets
        devices = self._input_workers.compute_devices_for_worker(0)
        with tf.device(device_util.canonicalize(worker, device_util.current())):
            device_iterators = _device_iterators(dataset, devices, self._options)
        worker_iterator = input_lib._SingleWorkerOwnedDatasetIterator(
            worker=worker,
            devices=devices,
            components=[device_iterators],
            element_spec=dataset.element_spec,
            options=self._options,
            canonicalize_devices=getattr(self._strategy, "_canonicalize_devices", True),
        )
        iterator = input_lib.DistributedIterator(
            self._input_workers,
            [worker_iterator],
            self._strategy,
            cardinality=self._cardinality,
            enable_get_next_as_optional=self._enable_get_next_as_optional,
            options=self._options,
            replica_order=self._replica_order,
        )
        iterator._element_spec = self._element_spec
        return iterator


def share_functions(data: Any) -> Any:
    """Let iterators over data that TensorFlow has divided share their traced functions."""
    if type(data) is input_lib.DistributedDataset:
        data.__class__ = PrefetchedDataset
    return data


def _device_iterators(dataset: Any, devices: Sequence[str], options: Any) -> Any:
    """Make an iterator on each device; the elements of the data set are dealt out in turn."""
    buffer = 1 if options is None else options.experimental_per_replica_buffer_size
    added = tf.data.Options()
    added.experimental_distribute.num_devices = len(devices)
    if not buffer:
        added.experimental_optimization.inject_prefetch = False
    dataset = dataset.with_options(added)._apply_debug_options()
    slack = 1 if dataset.options().experimental_slack else None
    source = device_util.get_host_for_device(device_util.current())
    with tf.device(source):
        dealer = gen_dataset_ops.anonymous_multi_device_iterator_v3(
            devices=devices, **dataset._flat_structure
        )
        run = gen_dataset_ops.multi_device_iterator_init(
            dataset._variant_tensor, dealer, max_buffer_size=max(buffer, 1)
        )
    iterators = []
    for place, device in enumerate(devices):
        with tf.device(device):
            rows = _DeviceRows(dataset.element_spec, place, device, source, dealer, run)
            ahead = prefetch_op._PrefetchDataset(rows, buffer, slack) if buffer else rows
            iterators.append(iter(ahead))
    return multi_device_iterator_ops.OwnedMultiDeviceIterator(
        components=[dealer, *iterators],
        devices=devices,
        source_device=source,
        element_spec=dataset.element_spec,
    )


class _DeviceRows(dataset_ops.DatasetV2):
    """The elements for a device, like TensorFlow's `_PerDeviceGenerator`."""

    def __init__(
        self, spec: Any, place: int, device: str, source: str, dealer: Any, run: Any
    ) -> None:
        self._spec = spec
        functions = _trace_functions(tuple(tf.nest.flatten(spec)), place, device)
        handle = gen_dataset_ops.multi_device_iterator_to_string_handle(dealer)
        super().__init__(
            gen_dataset_ops.generator_dataset(
                [handle],
                [run, tf.constant(source), dealer],  # the dealer lives as long as the data set
                [],
                **functions,
                **self._flat_structure,
            )
        )

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> Any:
        """Type specs of an element."""
        return self._spec


@functools.cache
def _trace_functions(specs: tuple[Any, ...], place: int, device: str) -> dict[str, Any]:
    """Trace the functions of a device's iterators."""
    types = structure.get_flat_tensor_types(specs)
    flat = {"output_types": types, "output_shapes": structure.get_flat_tensor_shapes(specs)}
    full_types = type_utils.fulltype_list_to_product(type_utils.fulltypes_for_flat_tensors(specs))
    text, number = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)

    @tf.function(input_signature=[text], autograph=False)
    def keep(handle: Any) -> Any:
        return tf.identity(handle)

    @tf.function(input_signature=[text, number], autograph=False)
    def deal(handle: Any, run: Any) -> Any:
        dealer = gen_dataset_ops.multi_device_iterator_from_string_handle(handle, **flat)
        return gen_dataset_ops.multi_device_iterator_get_next_from_shard(
            dealer, shard_num=place, incarnation_id=run, **flat
        )

    @tf.function(
        input_signature=[text, number, text],
        experimental_attributes={"experimental_ints_on_device": True},
        autograph=False,
    )
    def read(handle: Any, run: Any, host: Any) -> Any:
        function = deal.get_concrete_function()
        dealt = functional_ops.remote_call(target=host, args=[handle, run], Tout=types, f=function)
        for value in dealt:  # the full types mark strings, which stay in the host's memory
            value.op.experimental_set_type(full_types)
        return dealt

    with tf.init_scope(), tf.device(device):
        kept = keep.get_concrete_function()
        reads = read.get_concrete_function()
    return {"init_func": kept, "next_func": reads, "finalize_func": kept}
