"""Knowledge of types of operations: each set with the reason for it.

How operations are divided is in `rules/`. TensorFlow calls an operation stateful for many reasons;
the sets of effects say what a type does to a divided step. A stateful type in none of them, if it
takes no variable, acts outside of the program, and runs once, as draws of the process do.
"""


def types_in(names: str) -> frozenset[str]:
    """Return the types of operations in a text of their names."""
    return frozenset(names.split())


# Operations that only read a state.
READS = types_in("""
    LookupTableExportV2 LookupTableFindV2 LookupTableSizeV2 ReadVariableOp ResourceGather
    ResourceGatherNd VarIsInitializedOp VariableShape
""")
# Draws from generators that a process has once: they run once in each process, and its replicas
# get the result.
PROCESS_DRAWS = types_in("""
    AllCandidateSampler FixedUnigramCandidateSampler LearnedUnigramCandidateSampler
    LogUniformCandidateSampler Multinomial NonDeterministicInts ParameterizedTruncatedNormal
    RandomCrop RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal
    RandomUniform RandomUniformInt SampleDistortedBoundingBox SampleDistortedBoundingBoxV2
    ThreadUnsafeUnigramCandidateSampler TruncatedNormal UniformCandidateSampler
""")
# Operations without an effect on the program's state: they may be left out where no operation
# needs their results.
QUIET = {"Placeholder", *PROCESS_DRAWS}
# Draws of the numbers that a seed says.
DRAWS = types_in("""
    StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal
    StatelessTruncatedNormalV2
""")
# XLA draws other numbers than TensorFlow for these types.
DRAWN_BY_XLA = {*DRAWS, "StatelessMultinomial"}
# Operations that every replica may run on its own: their results follow from their inputs, or they
# only fail. cuDNN's, stateful for their workspace, draw a dropout of their own if they have one.
PURE = types_in("""
    Assert CheckNumerics CheckNumericsV2 CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2
    CudnnRNNBackpropV3 CudnnRNNV2 CudnnRNNV3 DeepCopy DeviceIndex EmptyTensorList
    GuaranteeConst IsTensorFloat32Enabled NoOp Placeholder StatelessRandomGetAlg
    StatelessRandomGetKeyCounter XlaDequantize
""")

# Operations with functions.
FUNCTION_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
CONDITIONS = ("Case", "If", "StatelessCase", "StatelessIf")
LOOPS = ("StatelessWhile", "While")
CALLS = {"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "While"}
"""Stateful operations with functions: their effects are those of the functions."""

# Operations of variables that have rules: the variables are not taken out of them.
VARIABLES = {"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "ReadVariableOp"}
PLAIN = {*VARIABLES, "VarIsInitializedOp", "VariableShape"}

# Operations that never fail, whatever their inputs are, if their shapes fit: a branch of them may
# be computed although another branch is chosen.
NEVER_FAIL = types_in("""
    Abs Add AddN AddV2 All Any BroadcastTo Cast Const DivNoNan Equal Exp ExpandDims Fill
    Greater GreaterEqual Identity IdentityN IsFinite IsInf IsNan L2Loss Less LessEqual Log
    LogicalAnd LogicalNot LogicalOr MatMul Max Maximum Mean Min Minimum Mul Neg NoOp NotEqual
    OnesLike Pack Placeholder Pow Rank RealDiv Reciprocal Reshape Rsqrt Select SelectV2 Shape
    Sigmoid Sign Sqrt Square SquaredDifference Squeeze StopGradient Sub Sum Tanh Transpose
    UnsortedSegmentSum ZerosLike
""")

# For costs. Free operations compute nothing; slices and lookups cost as much as they make;
# decompositions of matrices cost as much again for each row.
FREE = ("Const", "NoOp", "Placeholder", "ReadVariableOp", "Identity", "Reshape", "Shape")
SLICES = ("Slice", "StridedSlice", "Gather", "GatherV2", "GatherNd", "ResourceGather")
CUBIC = ("Cholesky", "Svd", "Qr", "MatrixInverse", "MatrixSolve", "SelfAdjointEigV2")

# Results of these types may differ although a step is right: TensorFlow may add axes of
# size 1 to a gradient's, and a list may leave sizes of its elements open.
AMBIGUOUS = ("BroadcastGradientArgs", "TensorListElementShape")
