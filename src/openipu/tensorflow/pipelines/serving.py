"""Pipelines for serving: their stages one after another, as a SavedModel."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.pipelines import checks
from openipu.tensorflow.pipelines.micro_batch import forward
from openipu.tensorflow.pipelines.options import PipelineSchedule
from openipu.tensorflow.serving import signatures
from openipu.tensorflow.serving.export import Around, Specs, check_iterations, export


def export_pipeline(
    computational_stages: Sequence[Callable | Sequence[Callable]],
    export_dir: str,
    iterations: int,
    inputs: Sequence[Any] | None = None,
    device_mapping: Sequence[int] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    poplar_options: Any = None,
    name: str | None = None,
    predict_step_signature: Specs = None,
    input_dataset: tf.data.Dataset | None = None,
    output_names: str | Sequence[str] | None = None,
    preprocessing_step: Callable | None = None,
    preprocessing_step_signature: Specs = None,
    postprocessing_step: Callable | None = None,
    postprocessing_step_signature: Specs = None,
    purge_export_dir: bool = False,
) -> Any:
    """Save a pipeline as a SavedModel that stock TensorFlow serves.

    Args:
      computational_stages, inputs, device_mapping, pipeline_schedule, name: as of `pipelining_ops.pipeline`.
      poplar_options: accepted for compatibility.
      export_dir, iterations, predict_step_signature, input_dataset, output_names, preprocessing_step,
        preprocessing_step_signature, postprocessing_step, postprocessing_step_signature, purge_export_dir: as of
        `export_single_step`; `iterations` must fit the schedule.

    Returns:
      The exported function.
    """
    check_iterations(iterations)
    schedule = PipelineSchedule.Grouped if pipeline_schedule is None else pipeline_schedule
    given = {
        "computational_stages": computational_stages,
        "device_mapping": device_mapping,
        "batch_serialization_iterations": 1,
        "optimizer_function": None,
        "gradient_accumulation_count": iterations,
    }
    mapping = checks.mapping_of(given, schedule)
    constants = [tf.convert_to_tensor(value) for value in inputs or ()]
    first: Any = computational_stages[0]
    first = first[0] if isinstance(first, list | tuple) else first
    # The constants come first, so the element's names are those of the parameters after them.
    own = first if not constants else (lambda *element: None)
    specs = signatures.of_step(own, "predict_step", predict_step_signature, input_dataset)

    def step(*element: tf.Tensor) -> Any:
        with tf.name_scope(name or "pipeline"):
            return forward(computational_stages, mapping, [*constants, *element], {})

    around = Around(
        preprocessing_step, preprocessing_step_signature, postprocessing_step, postprocessing_step_signature
    )
    return export(step, specs, export_dir, output_names, around, purge_export_dir)
