"""Operations on samples: images, convolutions, linear algebra."""

import tensorflow as tf
from rule_harness import NONE, SOME, B, Table, as_complex, half, ints


def samples():
    """Return rows of operations on samples: images, convolutions, linear algebra."""
    rows = Table(batches=False, static=False)

    image = (B, 6, 6, 2)
    twice = {"gradients": True}
    batched = {"batches": True, **twice}
    rounded = {"tolerance": 1e-5, **twice}
    onednn = {"empty": False, "tolerance": 1e-4, **twice}
    rows.add(
        "Conv2D Conv2DBackpropInput Conv2DBackpropFilter",
        lambda x, w: [tf.nn.conv2d(x, w, 1, "SAME"), tf.nn.conv2d(x, w, 2, "VALID")],
        [image, (3, 3, 2, 4)],
        static=True,
        **batched,
    )
    rows.add(
        "Conv2DBackpropInput",
        lambda x, w: tf.nn.conv2d_transpose(x, w, [tf.shape(x)[0], 12, 12, 3], 2),
        [image, (3, 3, 3, 2)],
        static=True,
        **batched,
    )
    rows.add(
        "FusedBatchNormV3",
        lambda x, scale, offset, mean, variance: tf.raw_ops.FusedBatchNormV3(
            x=tf.cast(x, "float32"),
            **{
                name: tf.cast(value, "float32")
                for name, value in {
                    "scale": scale,
                    "offset": offset,
                    "mean": mean,
                    "variance": tf.square(variance),
                }.items()
            },
            is_training=False,
        )[0],
        [image, (2,), (2,), (2,), (2,)],
        tolerance=1e-6,
    )
    rows.add(
        "Conv3D Conv3DBackpropInputV2 Conv3DBackpropFilterV2",
        lambda x, w: [tf.nn.conv3d(x, w, [1] * 5, "SAME")],
        [(B, 3, 4, 4, 2), (2, 2, 2, 2, 3)],
        **twice,
    )
    rows.add(
        "Conv3DBackpropInputV2",
        lambda x, w: tf.nn.conv3d_transpose(x, w, [tf.shape(x)[0], 6, 6, 6, 2], 2),
        [(B, 3, 3, 3, 3), (2, 2, 2, 2, 3)],
        **twice,
    )
    rows.add(
        "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput "
        "DepthwiseConv2dNativeBackpropFilter",
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"),
        [image, (3, 3, 2, 2)],
        empty=False,
        **twice,
    )
    rows.add(
        "DepthwiseConv2dNative SpaceToBatchND BatchToSpaceND",
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME", dilations=[2, 2]),
        [image, (3, 3, 2, 2)],
        empty=False,
        **twice,
    )
    rows.add(
        "AvgPool AvgPoolGrad MaxPool MaxPoolGrad",
        lambda x: [tf.nn.avg_pool2d(x, 2, 2, "VALID"), tf.nn.max_pool2d(x, 3, 2, "SAME")],
        [image],
        **batched,
    )
    rows.add(
        "AvgPool3D AvgPool3DGrad MaxPool3D MaxPool3DGrad",
        lambda x: [
            tf.nn.avg_pool3d(tf.cast(x, "float32"), 2, 2, "VALID"),
            tf.nn.max_pool3d(tf.cast(x, "float32"), 2, 1, "SAME"),
        ],
        [(B, 3, 4, 4, 2)],
        empty=False,
        **rounded,
    )

    single = lambda x: tf.cast(x, "float32")  # noqa: E731 - which oneDNN computes
    rows.add(
        "Conv2D BiasAdd MaxPool MaxPoolGrad",
        lambda x, w: tf.nn.max_pool2d(
            tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(single(x), single(w), 1, "SAME"), tf.ones([4]))),
            2,
            2,
            "VALID",
        ),
        [image, (3, 3, 2, 4)],
        **onednn,
    )
    rows.add(
        "Conv3D",
        lambda x, w: tf.nn.conv3d(single(x), single(w), [1] * 5, "VALID"),
        [(B, 3, 4, 4, 2), (2, 2, 2, 2, 3)],
        **onednn,
    )
    rows.add(
        "DepthwiseConv2dNative",
        lambda x, w: tf.nn.depthwise_conv2d(single(x), single(w), [1] * 4, "SAME"),
        [image, (3, 3, 2, 2)],
        **onednn,
    )

    def second_order(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(tf.nn.max_pool2d(x, 2, 2, "VALID") ** 3)
        return tf.reduce_sum(tape.gradient(y, x) ** 2, [1, 2, 3])

    rows.add("MaxPoolGradGrad", second_order, [image], **twice)
    rows.add(
        "Conv2D", lambda x, w: tf.nn.conv2d(x, w, 1, "SAME", dilations=2), [image, (3, 3, 2, 4)]
    )
    rows.add(
        "BiasAdd BiasAddGrad",
        lambda x, b: tf.nn.bias_add(x, b),
        [(B, 3), (3,)],
        [(B, 2, 3), (3,)],
        [image, (2,)],
        **batched,
    )
    rows.add(
        "DepthToSpace SpaceToDepth",
        lambda x: [tf.nn.depth_to_space(x, 2), tf.nn.space_to_depth(x, 2)],
        [(B, 2, 2, 4)],
        **batched,
    )
    rows.add(
        "Dilation2D Dilation2DBackpropInput",
        lambda x, w: tf.nn.dilation2d(x, w, [1] * 4, "SAME", "NHWC", [1] * 4),
        [image, (2, 2, 2)],
        divided=SOME,
        **twice,
    )
    rows.add(
        "ExtractImagePatches",
        lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"),
        [image],
        divided=SOME,
        empty=False,
        **twice,
    )
    rows.add(
        "LRN LRNGrad", lambda x: tf.nn.lrn(tf.cast(x, "float32")), [image], tolerance=1e-6, **twice
    )
    rows.add(
        "ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad "
        "ResizeBicubic ResizeBicubicGrad",
        lambda x: [
            getattr(tf.compat.v1.image, f"resize_{kind}")(tf.cast(x, "float32"), [4, 9])
            for kind in ("bilinear", "nearest_neighbor", "bicubic")
        ],
        [image],
        **rounded,
    )
    rows.add(
        "ResizeArea", lambda x: tf.compat.v1.image.resize_area(x, [4, 9]), [image], tolerance=1e-6
    )
    rows.add(
        "ScaleAndTranslate ScaleAndTranslateGrad",
        lambda x: tf.image.resize(tf.cast(x, "float32"), [4, 9], antialias=True),
        [image],
        **rounded,
    )
    color = (B, 3, 4, 3)
    rows.add(
        "RGBToHSV HSVToRGB AdjustHue AdjustSaturation AdjustContrastv2",
        lambda x: [
            tf.image.rgb_to_hsv(half(x)),
            tf.image.hsv_to_rgb(half(x)),
            tf.raw_ops.AdjustHue(images=tf.cast(half(x), "float32"), delta=0.1),
            tf.raw_ops.AdjustSaturation(images=tf.cast(half(x), "float32"), scale=1.5),
            tf.raw_ops.AdjustContrastv2(images=tf.cast(half(x), "float32"), contrast_factor=2.0),
        ],
        [color],
        batches=True,
        tolerance=1e-6,
    )
    rows.add(
        "AdjustContrastv2",
        lambda x: tf.raw_ops.AdjustContrastv2(images=tf.cast(x, "float32"), contrast_factor=2.0),
        [(B, 4, 3)],
        divided=NONE,
        empty=False,
        tolerance=1e-6,
    )
    rows.add(
        "ImageProjectiveTransformV3",
        lambda x, t: tf.raw_ops.ImageProjectiveTransformV3(
            images=x,
            transforms=tf.cast(t * 0.1 + [1, 0, 0, 0, 1, 0, 0, 0], "float32"),
            output_shape=[5, 6],
            fill_value=0.0,
            interpolation="BILINEAR",
        ),
        [image, (B, 8)],
        [image, (1, 8)],
        tolerance=1e-5,
        mixed=False,
    )
    rows.add(
        "ReverseSequence",
        lambda x, n: tf.reverse_sequence(x, n, seq_axis=1),
        [(B, 4, 3), ints(B)],
        **batched,
    )
    rows.add(
        "ReverseSequence",
        lambda x, n: tf.reverse_sequence(x, n, seq_axis=0, batch_axis=2),
        [(4, 3, B), ints(B)],
        [(4, B, 3), ints(3)],
    )
    rows.add(
        "ReverseSequence",
        lambda x, n: tf.reverse_sequence(x, n % 2, seq_axis=0, batch_axis=1),
        [(B, 3), ints(3)],
        divided=NONE,
        empty=False,
    )
    rows.add(
        "CombinedNonMaxSuppression",
        lambda b, s: tf.image.combined_non_max_suppression(
            tf.cast(tf.concat([b, b + 1], -1), "float32"),
            tf.cast(s, "float32"),
            2,
            3,
            score_threshold=0.0,
        ),
        [(B, 5, 1, 2), (B, 5, 2)],
        empty=False,
    )
    rows.add(
        "InTopKV2",
        lambda x, i: tf.math.in_top_k(i, tf.cast(x, "float32"), 2),
        [(B, 4), ints(B)],
        batches=True,
    )
    rows.add(
        "SoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=x, labels=half(y))[0],
        [(B, 4), (B, 4)],
        batches=True,
    )
    rows.add(
        "SoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x),
        [(B, 4), (B, 4)],
        mixed=False,
        **twice,
    )
    rows.add(
        "SoftmaxCrossEntropyWithLogits Reshape",
        lambda x, y: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x),
        [(B, 2, 2, 3), (B, 2, 2, 3)],
        mixed=False,
        **batched,
    )
    rows.add(
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
        [(B, 4), ints(B)],
        [(B, 4), ints(B)],
        **batched,
    )
    rows.add(
        "Softmax LogSoftmax TopKV2",
        lambda x: [tf.nn.softmax(x), tf.nn.log_softmax(x), *tf.math.top_k(x, 2)],
        [(B, 3)],
        [(2, B, 3)],
        **batched,
    )
    rows.add(
        "Softmax",
        lambda x: [tf.nn.softmax(x, axis=1), tf.nn.softmax(x, axis=0)],
        [(2, B)],
        divided=NONE,
    )
    matrix = lambda x: tf.matmul(x, x, transpose_b=True) + 3 * tf.eye(3, dtype=x.dtype)  # noqa: E731
    square = (B, 3, 3)
    rows.add("Cholesky", lambda x: tf.linalg.cholesky(matrix(x)), [square])
    rows.add(
        "CholeskyGrad",
        lambda x, g: tf.raw_ops.CholeskyGrad(l=tf.linalg.cholesky(matrix(x)), grad=g),
        [square, square],
        tolerance=1e-10,
    )
    rows.add(
        "LogMatrixDeterminant Lu MatrixBandPart MatrixDeterminant MatrixDiagPartV3 MatrixInverse "
        "Qr SelfAdjointEigV2 Svd",
        lambda x: [
            *tf.linalg.slogdet(matrix(x)),
            *tf.linalg.lu(matrix(x)),
            tf.linalg.band_part(x, 1, 0),
            tf.linalg.det(matrix(x)),
            tf.linalg.diag_part(x),
            tf.linalg.diag_part(x, k=(-1, 1)),
            tf.linalg.inv(matrix(x)),
            *tf.linalg.qr(matrix(x)),
            *tf.linalg.eigh(matrix(x)),
            *tf.linalg.svd(matrix(x)),
            tf.linalg.trace(x),
        ],
        [square],
        [(2, B, 3, 3)],
        tolerance=1e-10,
    )
    rows.add(
        "MatrixDiagV3", lambda x: [tf.linalg.diag(x), tf.linalg.diag(x, k=1)], [(B, 3)], [(2, B, 3)]
    )
    rows.add("MatrixDiagV3", lambda x: tf.linalg.diag(x, k=(0, 1)), [(B, 2, 3)], divided=NONE)
    rows.add(
        "MatrixSetDiagV3",
        lambda x, d: tf.linalg.set_diag(x, d),
        [square, (B, 3)],
        [(2, B, 3, 3), (2, B, 3)],
    )
    rows.add("MatrixDiagV3", lambda x: tf.linalg.diag(x[:, 0]), [(B, 3)], divided=NONE)
    rows.add("MatrixSetDiagV3", lambda x: tf.linalg.set_diag(x, x[:3, 0]), [(B, 3)], divided=NONE)
    rows.add(
        "LowerBound UpperBound",
        lambda x, y: [tf.searchsorted(tf.sort(x), y, side) for side in ("left", "right")],
        [(B, 3), (B, 2)],
    )
    rows.add(
        "MatrixSolve MatrixTriangularSolve",
        lambda x, y: [tf.linalg.solve(matrix(x), y), tf.linalg.triangular_solve(matrix(x), y)],
        [square, (B, 3, 2)],
        tolerance=1e-10,
    )
    rows.add(
        "MatrixTriangularSolve",
        lambda x, y: tf.linalg.triangular_solve(matrix(x), y),
        [(1, 3, 3), (B, 3, 2)],
        [(B, 3, 3), (1, 3, 2)],
        tolerance=1e-10,
    )
    rows.add(
        "Cross",
        lambda x, y: tf.linalg.cross(x, y),
        [(B, 3), (B, 3)],
        [(2, B, 3), (2, B, 3)],
        **batched,
    )
    volume = (B, 2, 4, 4)
    rows.add(
        "FFT FFT2D FFT3D IFFT IFFT2D IFFT3D RFFT IRFFT",
        lambda x: [
            tf.signal.fft(as_complex(x)),
            tf.signal.fft2d(as_complex(x)),
            tf.signal.fft3d(as_complex(x)),
            tf.signal.ifft(as_complex(x)),
            tf.signal.ifft2d(as_complex(x)),
            tf.signal.ifft3d(as_complex(x)),
            tf.signal.rfft(x),
            tf.signal.irfft(as_complex(x)),
        ],
        [volume],
        [(2, B, 2, 4, 4)],
    )
    return rows
