"""Models for serving, under the path IPU programs know."""

from collections.abc import Callable, Sequence
from typing import Any

from openipu.tensorflow.pipelines.serving import export_pipeline
from openipu.tensorflow.serving.export import Specs, export_single_step

__all__ = ["export_keras", "export_pipeline", "export_single_step"]


def export_keras(
    model: Any,
    export_dir: str,
    batch_size: int | None = None,
    output_names: str | Sequence[str] | None = None,
    preprocessing_step: Callable | None = None,
    preprocessing_step_signature: Specs = None,
    postprocessing_step: Callable | None = None,
    postprocessing_step_signature: Specs = None,
    purge_export_dir: bool = False,
) -> Any:
    """`model.export_for_ipu_serving`, for a model that was made in the scope of a strategy."""
    if not hasattr(model, "export_for_ipu_serving"):
        raise ValueError(
            "Provided model was not created inside an IPU strategy, so it does not contain IPU-specific functions. "
            "Make it inside `with strategy.scope():`."
        )
    return model.export_for_ipu_serving(export_dir, batch_size, output_names, preprocessing_step,
                                        preprocessing_step_signature, postprocessing_step,
                                        postprocessing_step_signature, purge_export_dir)  # fmt: skip
