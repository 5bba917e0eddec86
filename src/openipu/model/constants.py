"""Every number the predictions rest on, with its source; facts about chips are in `openipu.hardware.target`.

Tags of sources are those of the hardware reference: C = Citadel's microbenchmarks of the GC2, PL = PopLibs' public
cycle estimators, PLB = PopLibs' published benchmark results on Graphcore's IPU Model, K = the Keras tutorial, T = the
PopTorch data-loading tutorial, TR = the documentation of Poplar's text report, M = MLPerf results, P6 = Poplar
tutorial 6.
"""

import attrs


@attrs.frozen
class Constant:
    """A number the predictions rest on.

    Attributes:
      name, value, unit: what it is.
      source: where it is from.
      fitted: the figures it was fitted on; "" for a fact or a figure taken as it is.
    """

    name: str
    value: float
    unit: str
    source: str
    fitted: str = ""


CONSTANTS: list[Constant] = []


def _declared(name: str, value: float, unit: str, source: str, fitted: str = "") -> float:
    CONSTANTS.append(Constant(name, value, unit, source, fitted))
    return value


HARDWARE_FACTOR = _declared(
    "time of hardware over planned cycles", 1.15, "", "C, all convolutions", "the 157 convolutions of C together"
)

# Matrix products and convolutions.
PRODUCT_CALL = _declared("start of a product", 1100, "cycles", "PLB", "small fully connected layers of PLB")
PRODUCT_PHASE = _declared("further phase of a product", 300, "cycles", "PLB", "small fully connected layers of PLB")
BLOCK_CALL = _declared("start of a block of weights", 60, "cycles", "PL, simplified")
DENSE_VERTEX = _declared("supervisor of a 1x1 vertex", 50, "cycles", "PL")
DENSE_WORKER = _declared("worker of a 1x1 vertex", 31, "cycles", "PL")
DENSE_FREE_ROWS = _declared("rows within a worker's start", 3, "rows", "PL, simplified")
WINDOW_VERTEX = _declared("supervisor of an n x 1 vertex", 110, "cycles", "PL")
WINDOW_WORKER = _declared("worker of an n x 1 vertex", 18, "cycles", "PL")
WINDOW_ROW = _declared("row of a worker's list", 16, "cycles", "PL")
PARTIALS_CALL = _declared("worker that adds partials", 20, "cycles", "PL")
PARTIALS_EACH = _declared("one more partial, a vector", 2, "cycles", "PL")
PARTIALS_VECTOR = _declared("start of a vector of partials", 8, "cycles", "PL")
CAST_CALL = _declared("cast of partials", 156, "cycles", "PL")
OVERFULL_PLAN = _declared("temporaries over their share at most", 1.6, "", "PLB, squeezed products")

# Everything else an IPU computes.
ELEMENTWISE_CALL = _declared("start of an elementwise operation", 300, "cycles", "PL and PLB, first guess")
ELEMENTWISE_MORE = _declared(
    "one more operation fused into it", 200, "cycles", "PLB", "recurrent layers of PLB together"
)
ELEMENTWISE_MOVE = _declared("load and store of a vector", 1.0, "cycles", "PL")
ELEMENTWISE_INPUT = _declared("further input, a vector", 0.5, "cycles", "PL")
RELAYOUT_CALL = _declared("start of a relayout", 300, "cycles", "PL and PLB, first guess")
RELAYOUT_BYTE = _declared("relayout of a byte on every tile", 0.5, "cycles", "copies around exchanges, GC2 stencils")
REDUCTION_CALL = _declared("reduction over tiles", 2500, "cycles", "PLB reductions; agrees with C")
REDUCTION_LOCAL_CALL = _declared("reduction within tiles", 1500, "cycles", "PLB, softmax-style reductions")
REDUCTION_ELEMENT = _declared("element of a reduction on every tile", 1.0, "cycles", "PLB reductions")
REDUCTION_FLOAT = _declared("float32 over float16 in reductions", 1.2, "", "PLB reductions")
REDUCTION_PASSES = _declared("passes over the data of one layer at most", 3, "", "PL: kernels of normalisations")
POOLING_CALL = _declared("start of pooling", 3000, "cycles", "PLB pooling", "pooling of PLB together")
POOLING_VECTOR = _declared("one vector at one window position", 2.0, "cycles", "PLB pooling", "pooling of PLB together")
POOLING_BACKWARD = _declared("gradient of pooling over pooling", 2.4, "", "PLB pooling", "pooling of PLB together")
DEPTHWISE_CALL = _declared(
    "start of a depthwise convolution", 2600, "cycles", "PLB", "depthwise layers of PLB together"
)
DEPTHWISE_VECTOR = _declared("one vector of it at one window position", 2.2, "cycles", "PLB", "the same")
DEPTHWISE_BACKWARD = _declared("either gradient of it over itself", 1.3, "", "PLB", "the same")
GATHER_CALL = _declared("start of a look-up", 2500, "cycles", "PLB", "embeddings of PLB together")
GATHER_INDEX = _declared("one look-up", 62, "cycles", "PLB", "embeddings of PLB together")
SCATTER_INDEX = _declared("one addition to a row", 40, "cycles", "PLB", "embeddings of PLB together")
SMALL_TABLE = _declared(
    "tables up to this size are split by look-ups", 1 << 20, "bytes", "PLB", "small embedding of PLB"
)
SMALL_TABLE_SPLIT = _declared("into so many parts", 12, "", "PLB", "small embedding of PLB")
RANDOM_SAMPLE = _declared("random number on a tile", 2.0, "cycles", "C: 0.49 samples per tile and cycle")
DROPOUT_VECTOR = _declared("vector of a random mask", 3.0, "cycles", "PL")
SORT_STEP = _declared("compare and exchange of an element", 8, "cycles", "guess: a bitonic sort over tiles")
LINEAR_ALGEBRA_COLUMN = _declared(
    "step of a blocked factorisation", 12000, "cycles", "PLB, Cholesky of 16 to 64 columns"
)

# Memory.
PROGRAM_BYTES = _declared("an empty program on a tile", 4400, "bytes", "TR, an adder on GC2")
OPERATION_BYTES = _declared("one distinct operation on a tile", 600, "bytes", "PLB, totals of products")
CONTROL_BYTES = _declared("one operation on a tile that has no part in it", 60, "bytes", "guess: a tenth of the above")
EXCHANGE_SHARE = _declared("of which exchange code", 0.3, "", "guess: TR separates them for an adder only")
TILE_GRAIN = _declared("least bytes of a value on a tile", 64, "bytes", "PL: default grain of 16 floats")
PLAN_SPREAD = _declared("memory of plans, largest over smallest likely", 1.28, "", "PLB, spread of products' totals")

# Between IPUs, and with the host.
COLLECTIVE_LATENCY = _declared("start of a collective", 8e-6, "s", "K, T", "two-replica figures of K and T")
COLLECTIVE_BANDWIDTH = _declared("collectives of up to four replicas", 48e9, "B/s", "K, T", "two-replica figures of T")
COLLECTIVE_BANDWIDTH_FAR = _declared("collectives of more", 18e9, "B/s", "M", "ResNet-50 on two pods of 16")
COLLECTIVE_NEAR = _declared("replicas that are close", 4, "", "four IPUs share a machine")
STAGE_BANDWIDTH = _declared("between stages, each way", 48e9, "B/s", "half of the six links of a pair")
HOST_BANDWIDTH = _declared("streams that nothing hides", 2e9, "B/s", "K, T; P6 agrees", "real-data figures of K and T")
HOST_LATENCY = _declared("smallest transfer with the host", 9e-6, "s", "C")
STREAMING_BANDWIDTH = _declared("streaming memory of one IPU", 16e9, "B/s", "bound: link between IPU and gateway")
LAUNCH = _declared("start of an execution from Keras", 2.3e-3, "s", "K", "the two one-step figures of K")
LAUNCH_LOW = _declared("start of an execution from PopTorch", 0.75e-3, "s", "PopXL tutorials' session runs")
ROUNDING = _declared("stochastic rounding of a result", 0.0, "cycles", "hardware rounds as fast either way")
