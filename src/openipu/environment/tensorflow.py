"""TensorFlow's variables: TF_POPLAR_FLAGS, which Keras is `tf.keras`, and oneDNN."""

import os

from openipu.environment.flags import PoplarFlags, parse, usage
from openipu.environment.variable import BOOLEAN, declare

TENSORFLOW = "TensorFlow and Keras"

_flags = declare(
    "TF_POPLAR_FLAGS",
    TENSORFLOW,
    "Flags of the IPU's TensorFlow, separated by blanks; the table below has them all.",
    values="`--flag` or `--flag=value` …",
)
_legacy_keras = declare(
    "TF_USE_LEGACY_KERAS",
    TENSORFLOW,
    "TensorFlow's own: `1` makes `tf.keras` Keras 2 (`tf_keras`); in programs that import `ipu`, `import keras` is the "
    "same Keras then.",
    "0",
    values="`1` or `true`; anything else means no",
)
_onednn = declare(
    "TF_ENABLE_ONEDNN_OPTS",
    TENSORFLOW,
    "TensorFlow's own: whether it computes with oneDNN. A program that imports `ipu` gets 0 unless it is set: XLA does "
    "its work, and oneDNN's products of float16 end in an illegal instruction on some processors.",
    values="`0`, `1`; TensorFlow's default is `1`",
)

_tensorflow1 = declare(
    "OPENIPU_TF1",
    TENSORFLOW,
    "Whether the program is written for TensorFlow 1: its own `import tensorflow` gives `tensorflow.compat.v1` with "
    "the behaviour of version 1, and `tf.keras` is Keras 2 where that is installed. `openipu run` sets it for programs "
    "that use what only version 1 has.",
    "0",
    valid=BOOLEAN,
)


def poplar_flags() -> PoplarFlags:
    """The flags in TF_POPLAR_FLAGS, checked; `--help` prints them all and ends the program."""
    flags = parse(_flags.read())
    if flags.help:
        print(usage())
        raise SystemExit(0)
    return flags


def running_on_ipu_model() -> bool:
    """Whether TF_POPLAR_FLAGS asks for the software model of the IPU; as in the original, the text alone decides."""
    return "--use_ipu_model" in _flags.read()


def legacy_keras() -> bool:
    """Whether `tf.keras` is Keras 2 (TF_USE_LEGACY_KERAS), read as TensorFlow reads it."""
    return _legacy_keras.read().lower() in ("1", "true")


def without_onednn() -> None:
    """Switches oneDNN off unless the user has decided (TF_ENABLE_ONEDNN_OPTS); comes before `import tensorflow`."""
    os.environ.setdefault(_onednn.name, "0")


def tensorflow1() -> bool:
    """Whether the program is written for TensorFlow 1 (OPENIPU_TF1)."""
    return _tensorflow1.is_on()


def tensorflow1_is_decided() -> bool:
    """Whether the user has said which TensorFlow the program is written for."""
    return _tensorflow1.is_given()


def legacy_keras_by_default() -> None:
    """Makes `tf.keras` Keras 2 unless the user has decided, if that is installed; comes before `import tensorflow`."""
    from importlib.util import find_spec

    if find_spec("tf_keras") is not None:
        os.environ.setdefault(_legacy_keras.name, "1")
