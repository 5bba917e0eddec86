"""Functions put one after another, frozen, and saved with one signature."""

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import tensorflow as tf

from openipu.errors import UnsupportedError
from openipu.runtime import bring_all_home
from openipu.tensorflow import boundary
from openipu.tensorflow.serving import signatures

Specs = Sequence[tf.TensorSpec] | None


@attrs.frozen(eq=False)
class Around:
    """What happens on the host before and after the step, and the types of what those functions take."""

    before: Callable | None = None
    before_signature: Specs = None
    after: Callable | None = None
    after_signature: Specs = None


def export_single_step(
    predict_step: Callable,
    export_dir: str,
    iterations: int,
    predict_step_signature: Specs = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: str | Sequence[str] | None = None,
    preprocessing_step: Callable | None = None,
    preprocessing_step_signature: Specs = None,
    postprocessing_step: Callable | None = None,
    postprocessing_step_signature: Specs = None,
    purge_export_dir: bool = False,
) -> Any:
    """Save a function as a SavedModel that stock TensorFlow serves.

    Args:
      predict_step: a function of tensors; its variables become constants.
      export_dir: where to; must be empty or new.
      iterations: requests that one execution on an IPU would take; checked.
      predict_step_signature: specs of its arguments.
      input_dataset: instead of them, a dataset with such elements.
      output_names: of the outputs; `output_0`, ... by default.
      preprocessing_step, postprocessing_step: functions that run before and after it.
      preprocessing_step_signature, postprocessing_step_signature: specs of their arguments.
      purge_export_dir: delete what is in `export_dir`.

    Returns:
      The exported function.
    """
    check_iterations(iterations)
    specs = signatures.of_step(predict_step, "predict_step", predict_step_signature, input_dataset)
    around = Around(
        preprocessing_step, preprocessing_step_signature, postprocessing_step, postprocessing_step_signature
    )
    return export(predict_step, specs, export_dir, output_names, around, purge_export_dir)


def check_iterations(iterations: int) -> None:
    """So many requests make one execution."""
    if not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations must be a positive integer. Received: iterations={iterations!r}.")


def export(
    step: Callable,
    specs: Sequence[tf.TensorSpec],
    export_dir: str,
    output_names: str | Sequence[str] | None,
    around: Around,
    purge: bool,
) -> Any:
    """Save a step, and what is around it, and return the function that was saved; arguments as above."""
    steps = [(step, "predict_step", list(specs))]
    if around.before is not None:
        given = signatures.of_step(around.before, "preprocessing_step", around.before_signature)
        steps.insert(0, (around.before, "preprocessing_step", given))
    if around.after is not None:
        given = signatures.of_step(around.after, "postprocessing_step", around.after_signature)
        steps.append((around.after, "postprocessing_step", given))

    def whole(*tensors: tf.Tensor) -> list[tf.Tensor]:
        values: list[Any] = list(tensors)
        giver = None
        for function, name, wanted in steps:
            if giver is not None:
                signatures.check_handed_over(values, wanted, giver, name)
            values = _listed(name, function(*values))
            giver = name
        return values

    inputs = steps[0][2]
    _make_directory(export_dir, purge)
    bring_all_home()
    concrete = tf.function(whole).get_concrete_function(*inputs)
    _refuse_device_operations(concrete.graph.as_graph_def())
    frozen = boundary.frozen(concrete)
    names = _output_names(output_names, len(frozen.outputs))

    @tf.function(input_signature=inputs)
    def predict(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(zip(names, frozen(*tensors), strict=True))

    module: Any = tf.Module()
    module.predict = predict
    tf.saved_model.save(module, os.fspath(export_dir), signatures={"serving_default": predict, "predict": predict})
    return predict


def _listed(name: str, returned: Any) -> list[tf.Tensor]:
    values = tf.nest.flatten(returned)
    if not values or any(value is None for value in values):
        raise ValueError(f"{name} must return tensors. Received: {returned!r}.")
    return [tf.convert_to_tensor(value) for value in values]


def _make_directory(export_dir: str, purge: bool) -> None:
    if os.path.isdir(export_dir) and os.listdir(export_dir):
        if not purge:
            raise ValueError(f'Directory "{export_dir}" is not empty. Please specify an empty directory.')
        shutil.rmtree(export_dir)
    os.makedirs(export_dir, exist_ok=True)


def _refuse_device_operations(graph: Any) -> None:
    """Stock TensorFlow does not have what only the IPU has."""
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    found = sorted({node.name for node in nodes if node.op in ("XlaCustomCall", "XlaCustomCallV2")})
    if found:
        raise UnsupportedError(
            f"A model for serving runs without openipu, but uses operations that only the IPU has: {found[:5]}. "
            "Replace them by operations of TensorFlow, such as tf.nn.embedding_lookup."
        )


def _output_names(given: str | Sequence[str] | None, count: int) -> list[str]:
    if given is None:
        return [f"output_{i}" for i in range(count)]
    names = [given] if isinstance(given, str) else list(given)
    if len(names) != count:
        raise ValueError(
            f"output_names must have one name for each of the {count} outputs. Received: output_names={given!r}."
        )
    return names
