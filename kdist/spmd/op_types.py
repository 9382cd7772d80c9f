"""Types of operations, in sets by their effects and costs.

`rules/` has the rules that divide operations. TensorFlow calls an operation stateful for many
reasons; the sets `READS` to `PURE` give the effects of stateful types in a divided step. A stateful
type that is in no set and takes no variable acts outside of the program: it runs once, as draws of
the process do.
"""


def types_in(names: str) -> frozenset[str]:
    """Return a set of types of operations from their names in a text."""
    return frozenset(names.split())


# Operations that only read a state.
READS = types_in("""
    LookupTableExportV2 LookupTableFindV2 LookupTableSizeV2 ReadVariableOp ResourceGather
    ResourceGatherNd VarIsInitializedOp VariableShape
""")
# Draws from generators that a process has once: such a draw runs once in each process, and all
# replicas of the process get the result.
PROCESS_DRAWS = types_in("""
    AllCandidateSampler FixedUnigramCandidateSampler LearnedUnigramCandidateSampler
    LogUniformCandidateSampler Multinomial NonDeterministicInts ParameterizedTruncatedNormal
    RandomCrop RandomGamma RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal
    RandomUniform RandomUniformInt SampleDistortedBoundingBox SampleDistortedBoundingBoxV2
    ThreadUnsafeUnigramCandidateSampler TruncatedNormal UniformCandidateSampler
""")
# Operations without an effect on the program's state: they may be left out if no operation needs
# their results.
REMOVABLE = {"Placeholder", *PROCESS_DRAWS}
# Draws that follow from a seed.
DRAWS = types_in("""
    StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal
    StatelessTruncatedNormalV2
""")
# For these types, XLA's numbers differ from TensorFlow's.
DRAWN_BY_XLA = {*DRAWS, "StatelessMultinomial"}
# Operations that every replica may run on its own: their results follow from their inputs, or their
# only effect is an error. cuDNN's operations are stateful for their workspace; with a dropout they
# are not pure, as cuDNN draws the dropout (`effects._draws_dropout`).
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
"""Stateful operations that call functions, and have the effects of these functions."""

# Operations of variables that have rules: the operations keep their variables.
VARIABLES = {"AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "ReadVariableOp"}
PLAIN = {*VARIABLES, "VarIsInitializedOp", "VariableShape"}

# Operations that never fail if the shapes of their inputs fit, whatever the values are: a branch of
# these operations may be computed even if it is not chosen.
NEVER_FAIL = types_in("""
    Abs Add AddN AddV2 All Any BroadcastTo Cast Const DivNoNan Equal Exp ExpandDims Fill
    Greater GreaterEqual Identity IdentityN IsFinite IsInf IsNan L2Loss Less LessEqual Log
    LogicalAnd LogicalNot LogicalOr MatMul Max Maximum Mean Min Minimum Mul Neg NoOp NotEqual
    OnesLike Pack Placeholder Pow Rank RealDiv Reciprocal Reshape Rsqrt Select SelectV2 Shape
    Sigmoid Sign Sqrt Square SquaredDifference Squeeze StopGradient Sub Sum Tanh Transpose
    UnsortedSegmentSum ZerosLike
""")

# For costs. Free operations compute nothing. Slices and lookups cost the size of their results.
# Decompositions of matrices cost the size of the matrix times the length of its last axis.
WITHOUT_COST = ("Const", "NoOp", "Placeholder", "ReadVariableOp", "Identity", "Reshape", "Shape")
SLICES = ("Slice", "StridedSlice", "Gather", "GatherV2", "GatherNd", "ResourceGather")
CUBIC = ("Cholesky", "Svd", "Qr", "MatrixInverse", "MatrixSolve", "SelfAdjointEigV2")

# Validation does not compare results of these types: they may differ although a step is right.
# TensorFlow may add axes of size 1 to the axes of a gradient, and a list may leave sizes of its
# elements open.
NOT_VALIDATED = ("BroadcastGradientArgs", "TensorListElementShape")
