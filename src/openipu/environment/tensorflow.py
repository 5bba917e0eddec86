"""TensorFlow's variables: TF_POPLAR_FLAGS, and which Keras is `tf.keras`."""

from openipu.environment.flags import PoplarFlags, parse, usage
from openipu.environment.variable import declare

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
    "TensorFlow's own: `1` makes `tf.keras` Keras 2 (`tf_keras`).",
    "0",
    values="`1` or `true`; anything else means no",
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
