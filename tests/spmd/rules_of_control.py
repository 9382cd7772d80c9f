"""Loops, conditions, lists and state."""

import numpy as np
import tensorflow as tf
from rule_harness import NONE, B, Table, positive, twin


@tf.function(jit_compile=True, autograph=False)
def in_groups(x, w):
    """Convolve in groups, whose gradients TensorFlow has for XLA alone on CPUs."""
    return tf.nn.conv1d(x, w, 1, "SAME")


@tf.function(jit_compile=True, autograph=False)
def compiled_sizes(x):
    """Flatten and restore rows, by sizes that XLA has to know."""
    flat = tf.reshape(x, [tf.shape(x)[0] * 3])
    return tf.reshape(tf.sin(flat), [tf.shape(x)[0], 3]), tf.reduce_sum(x, 0)


@tf.function(jit_compile=True, autograph=False)
def compiled_mean(x):
    """Need the mean of all rows."""
    return x - tf.reduce_mean(tf.square(x))


@tf.function(jit_compile=True, autograph=False)
def compiled_draws(x):
    """Draw numbers, which XLA does in another way than TensorFlow."""
    return x * tf.random.stateless_normal(tf.shape(x), [1, 2], dtype=x.dtype)


def control():
    """Return rows of loops, conditions and lists."""
    rows = Table(batches=False, static=False, whole_in_graph=True)

    def rnn(x, w):
        steps = tf.shape(x)[1]
        array = tf.TensorArray(x.dtype, steps, element_shape=[None, 3])
        state = tf.zeros([tf.shape(x)[0], 3], x.dtype)

        def body(t, state, array):
            state = tf.tanh(x[:, t] @ w + state)
            return t + 1, state, array.write(t, state)

        _, state, array = tf.while_loop(lambda t, *_: t < steps, body, (0, state, array))
        return state, tf.transpose(array.stack(), [1, 0, 2])

    rows.add(
        "StatelessWhile TensorListReserve TensorListSetItem TensorListStack",
        rnn,
        [(B, 4, 2), (2, 3)],
    )
    rows.add(
        "StatelessWhile TensorListReserve TensorListSetItem TensorListStack",
        rnn,
        [(B, 4, 2), (2, 3)],
        gradients=True,
    )

    def decoder(step_loss):
        def total_loss(x, w):
            def body(t, state, total, array):
                state = tf.tanh(x[:, t] @ w + state)
                loss = step_loss(t, tf.reduce_mean(tf.square(state - x[:, t, :1]), -1), w)
                return t + 1, state, total + loss, array.write(t, loss)

            array = tf.TensorArray(x.dtype, 4, element_shape=[])
            state, total = tf.zeros([tf.shape(x)[0], 3], x.dtype), tf.zeros([], x.dtype)
            _, _, total, array = tf.while_loop(lambda t, *_: t < 4, body, (0, state, total, array))
            return total, array.stack()

        return total_loss

    def by_size(t, loss, w):
        return tf.reduce_sum(loss) / tf.cast(tf.size(loss), loss.dtype)

    losses = {
        "Mean AddV2": lambda t, loss, w: tf.reduce_mean(loss),
        "RealDiv": by_size,
        "RealDiv Mul": lambda t, loss, w: by_size(t, loss, w) * w[t % 2, 0],
    }
    types = "StatelessWhile TensorListReserve TensorListSetItem TensorListStack"
    for kinds, step_loss in losses.items():
        rows.add(f"{types} {kinds}", decoder(step_loss), [(B, 4, 2), (2, 3)], gradients=True)
    losses = [
        lambda t, loss, w: tf.reduce_sum(loss) / tf.reduce_sum(loss**2),
        lambda t, loss, w: tf.reduce_sum(loss) / tf.cast(t, loss.dtype),
    ]
    for step_loss in losses:
        inputs = [(B, 4, 2), (2, 3)]
        rows.add("StatelessWhile", decoder(step_loss), inputs, divided=NONE, empty=False)

    def sliced_weights(x, w):
        def body(t, state):
            state = tf.tanh(x @ w[:2] + tf.slice(w, [2, 0], [1, 2]) + state)
            return t + 1, state

        return tf.while_loop(lambda t, _: t < 3, body, (0, tf.zeros_like(x)))[1]

    # The gradients are partial sums of a slice.
    types = "StatelessWhile StridedSliceGrad Pad"
    rows.add(types, sliced_weights, [(B, 2), (3, 2)], gradients=True)

    def scanned(x, w):
        columns = tf.transpose(x, [1, 0, 2])
        return tf.scan(
            lambda a, e: tf.tanh(e @ w + a), columns, initializer=tf.zeros_like(x[:, 0] @ w)
        )

    rows.add("StatelessWhile", scanned, [(B, 4, 2), (2, 3)], gradients=True, divided=NONE)

    def read_back(x):
        array = tf.TensorArray(x.dtype, 4).unstack(tf.transpose(x))
        total = tf.while_loop(
            lambda t, _: t < 4,
            lambda t, a: (t + 1, a + array.read(t) * tf.cast(t, x.dtype)),
            (0, tf.zeros_like(x[:, 0])),
        )
        return total[1]

    types = "StatelessWhile TensorListFromTensor TensorListGetItem"
    rows.add(types, read_back, [(B, 4)], gradients=True)
    rows.add(
        "StatelessWhile",
        lambda x: tf.while_loop(
            lambda i, _: i < 3, lambda i, a: (i + 1, a * 1.5 + tf.reduce_mean(a)), (0, x)
        )[1],
        [(B, 3)],
        divided=NONE,
    )
    rows.add(
        "StatelessWhile",
        lambda x: tf.while_loop(
            lambda a: tf.reduce_sum(a) < 10, lambda a: a * 2 + 1, (positive(x),)
        )[0],
        [(B, 3)],
        divided=NONE,
        empty=False,
    )
    rows.add(
        "StatelessIf",
        lambda x: tf.cond(tf.shape(x)[0] > 3, lambda: x * 2, lambda: tf.sin(x)),
        [(B, 3)],
        gradients=True,
    )
    rows.add(
        "StatelessIf",
        lambda x: tf.cond(tf.reduce_mean(x) > 0, lambda: x * 2, lambda: tf.zeros_like(x)),
        [(B, 3)],
        gradients=True,
    )
    rows.add(
        "StatelessIf",
        lambda x: tf.cond(
            tf.reduce_mean(x) > 0, lambda: tf.reduce_sum(x, 0), lambda: tf.reduce_mean(x, 0) ** 2
        ),
        [(B, 3)],
        gradients=True,
        divided=NONE,
    )
    rows.add(
        "StatelessIf",
        lambda x, y: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: y + 1),
        [(B, 3), twin(B, 3)],
        mixed=False,
    )
    rows.add("While If", with_variable, [(B, 3)], variable=np.arange(3.0))
    rows.add("StatelessCase", switched, [(B, 3)])
    rows.add("XlaCall", in_groups, [(B, 5, 4), (3, 2, 4)], gradients=True)
    rows.add("XlaCall", compiled_sizes, [(B, 3)], gradients=True)
    rows.add("XlaCall", compiled_mean, [(B, 3)], divided=NONE)
    rows.add("XlaCall", compiled_draws, [(B, 4)], gradients=True)
    rows.add("StatelessCase", switched, [(B, 3)], gradients=True, divided=NONE)
    rows.add(
        "Case", lambda x, v: switched(x * v) + switched(x, v), [(B, 3)], variable=np.arange(3.0)
    )
    rows.add(
        "While If", with_variable, [(B, 3)], variable=np.arange(3.0), gradients=True, divided=NONE
    )

    def lists(x):
        made = tf.raw_ops.EmptyTensorList(
            element_shape=tf.constant([-1, 3]), max_num_elements=5, element_dtype=x.dtype
        )
        for one in (x, x * 2, x * 3):
            made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=one)
        shape = tf.constant([-1, 3])
        rest, last = tf.raw_ops.TensorListPopBack(
            input_handle=made, element_shape=shape, element_dtype=x.dtype
        )
        more = tf.raw_ops.TensorListResize(input_handle=rest, size=3)
        more = tf.raw_ops.TensorListSetItem(input_handle=more, index=2, item=x * 5)
        return [
            last,
            tf.raw_ops.TensorListLength(input_handle=rest),
            tf.raw_ops.TensorListStack(
                input_handle=more, element_shape=shape, element_dtype=x.dtype
            ),
            tf.raw_ops.TensorListGetItem(
                input_handle=more, index=1, element_shape=shape, element_dtype=x.dtype
            ),
        ]

    kinds = ["PushBack", "PopBack", "Resize", "SetItem", "Length", "Stack", "GetItem"]
    rows.add(
        " ".join(["EmptyTensorList", *(f"TensorList{kind}" for kind in kinds)]), lists, [(B, 3)]
    )

    def shapes_of_elements(x):
        made = tf.raw_ops.EmptyTensorList(
            element_shape=tf.shape(x), max_num_elements=2, element_dtype=x.dtype
        )
        made = tf.raw_ops.TensorListPushBack(input_handle=made, tensor=x * 2)
        return tf.raw_ops.TensorListElementShape(input_handle=made, shape_type="int64")

    rows.add("TensorListElementShape", shapes_of_elements, [(B, 3)], batches=True)

    def concatenated(x):
        made = tf.raw_ops.TensorListReserve(
            element_shape=[-1, 3], num_elements=2, element_dtype=x.dtype
        )
        for index in (0, 1):
            made = tf.raw_ops.TensorListSetItem(input_handle=made, index=index, item=x * 2)
        return tf.raw_ops.TensorListConcatV2(
            input_handle=made, element_shape=[-1, 3], leading_dims=[-1], element_dtype=x.dtype
        )

    rows.add("TensorListReserve", concatenated, [(B, 3)], divided=NONE)
    rows.add(
        "OptionalNone OptionalFromValue OptionalGetValue",
        lambda x: tf.cond(tf.shape(x)[0] > 3, lambda: tf.square(tf.tanh(x)), lambda: 2.0 * x),
        [(B, 3)],
        [(2, B)],
        gradients=True,
    )
    return rows


def switched(x, v=1.0):
    """Return what one of three branches makes."""
    branches = [lambda: x * v, lambda: tf.sin(x) + v, lambda: x - v]
    return tf.switch_case(tf.shape(x)[0] % 3, branches)


def with_variable(x, v):
    """Return what a condition and a loop make that read a variable."""
    found = tf.cond(tf.shape(x)[0] > 3, lambda: x * v, lambda: tf.sin(x) + v)
    return found, tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * v), (0, x))[1]


def state():
    """Return rows of what has no rows of a batch, and of checks."""
    rows = Table(static=False)

    def checked(x):
        check = tf.debugging.Assert(tf.reduce_all(x < 100), [x])
        with tf.control_dependencies([check]):
            return x * 2

    rows.add("Assert", checked, [(B, 3)], [(2, B)])

    def grouped(x):
        with tf.control_dependencies([tf.group(tf.debugging.Assert(tf.reduce_all(x < 100), [x]))]):
            return x * 2

    rows.add("NoOp", grouped, [(B, 3)], divided=NONE)
    rows.add(
        "Const EmptyTensorMap",
        lambda x: (
            x * tf.constant([1.0, 2, 3], x.dtype)
            + tf.cast(tf.raw_ops.TensorMapSize(input_handle=tf.raw_ops.EmptyTensorMap()), x.dtype)
        ),
        [(B, 3)],
        divided=NONE,
    )
    rows.add(
        "ReadVariableOp VariableShape VarIsInitializedOp",
        lambda x, v: [
            x * v[0],
            tf.raw_ops.VariableShape(input=v.handle),
            tf.raw_ops.VarIsInitializedOp(resource=v.handle),
        ],
        [(B, 3)],
        variable=np.arange(12.0).reshape(4, 3),
        divided=NONE,
    )
    return rows
