"""The methods that Keras models have inside an IPU strategy's scope."""

import contextlib
from collections.abc import Iterator
from typing import Any

from openipu.tensorflow.keras import loop, saving, serving, stages
from openipu.tensorflow.keras.fit_arguments import positive
from openipu.tensorflow.keras.options import Options, State
from openipu.tensorflow.keras.versions import KerasVersion
from openipu.tensorflow.ops.loss_scaling import scales_loss
from openipu.tensorflow.serving.export import Around


class ModelExtension(stages.ModelStages):
    """Methods of every model in scope; subclasses of `Model` get exactly these."""

    __original_class__: type
    _ipu_keras: KerasVersion

    @property
    def _ipu(self) -> State:
        """Options and compiled programs of this model."""
        state = self.__dict__.get("_ipu_state")
        if state is None:
            state = self.__dict__["_ipu_state"] = State(self._ipu_keras, self.__dict__["_ipu_strategy"], Options())
        return state

    def get_config(self) -> dict[str, Any]:
        """The config as in Keras, with the IPU options that were set."""
        return {**self.__original_class__.get_config(self), **saving.config_of(self)}

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile as in Keras; programs compiled earlier are forgotten."""
        self._ipu.forget()
        if kwargs.get("steps_per_execution") != "auto":
            positive("steps_per_execution", kwargs.get("steps_per_execution"))
        self.__original_class__.compile(self, *args, **kwargs)
        optimizer = args[0] if args else kwargs.get("optimizer")
        if scales_loss(optimizer):
            # With mixed precision Keras puts a loss scaling of its own around every optimizer.
            self.optimizer = optimizer

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as a stored model was; Keras does that only for a class with its own `compile`, not with ours."""
        with self._as_original():
            self.compile_from_config(config)
        self._ipu.forget()

    def _init_set_name(self, *args: Any, **kwargs: Any) -> None:
        """Where Keras 2 names a model: "model", where the class is its own Functional."""
        with self._as_original():
            self._init_set_name(*args, **kwargs)

    def __reduce__(self) -> Any:
        """Pickled as Keras does, by the class that can be found by its name; loaded in a scope it is extended again."""
        original: Any = self.__original_class__
        make, *rest = original.__reduce__(self)
        if getattr(make, "__self__", None) is self.__class__:
            make = getattr(original, make.__name__)
        return make, *rest

    @contextlib.contextmanager
    def _as_original(self) -> Iterator[None]:
        """The model with the class it would have outside of a scope, for what Keras decides by the class."""
        extended = self.__class__
        object.__setattr__(self, "__class__", self.__original_class__)
        try:
            yield
        finally:
            object.__setattr__(self, "__class__", extended)

    def fit(self, x: Any = None, y: Any = None, batch_size: int | None = None, epochs: int = 1,
            verbose: Any = "auto", callbacks: Any = None, validation_split: float = 0.0, validation_data: Any = None,
            shuffle: Any = True, class_weight: Any = None, sample_weight: Any = None, initial_epoch: int = 0,
            steps_per_epoch: int | None = None, validation_steps: int | None = None,
            validation_batch_size: int | None = None, validation_freq: Any = 1, max_queue_size: int = 10,
            workers: int = 1, use_multiprocessing: bool = False) -> Any:  # fmt: skip
        """Train on the IPU; the arguments are those of Keras."""
        size, steps = positive("batch_size", batch_size), positive("steps_per_epoch", steps_per_epoch)
        data = loop.Data(x, y, sample_weight, class_weight, size, steps, shuffle)
        steps = positive("validation_steps", validation_steps)
        size = positive("validation_batch_size", validation_batch_size)
        validation = loop.Validation(validation_data, validation_split, steps, size, validation_freq)
        return loop.fit(self, data, validation, epochs, initial_epoch, verbose, callbacks)

    def evaluate(self, x: Any = None, y: Any = None, batch_size: int | None = None, verbose: Any = "auto",
                 sample_weight: Any = None, steps: int | None = None, callbacks: Any = None, max_queue_size: int = 10,
                 workers: int = 1, use_multiprocessing: bool = False, return_dict: bool = False,
                 **kwargs: Any) -> Any:  # fmt: skip
        """Evaluate on the IPU; the arguments are those of Keras."""
        if kwargs:
            raise ValueError(f"Arguments not recognized: {kwargs}")
        size, steps = positive("batch_size", batch_size), positive("steps", steps)
        data = loop.Data(x, y, sample_weight, None, size, steps, False)
        return loop.evaluate(self, data, verbose, callbacks, return_dict)

    def predict(self, x: Any, batch_size: int | None = None, verbose: Any = "auto", steps: int | None = None,
                callbacks: Any = None, max_queue_size: int = 10, workers: int = 1,
                use_multiprocessing: bool = False) -> Any:  # fmt: skip
        """Predict on the IPU; the outputs are in the order of the data."""
        size, steps = positive("batch_size", batch_size), positive("steps", steps)
        return loop.predict(self, loop.Data(x, batch_size=size, steps=steps), verbose, callbacks)

    def train_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None,
                       reset_metrics: bool = True, return_dict: bool = False) -> Any:  # fmt: skip
        """One step on one batch, on one replica."""
        data = loop.Data(x, y, sample_weight, class_weight)
        return loop.on_batch(self, "train", data, reset_metrics, return_dict)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, reset_metrics: bool = True,
                      return_dict: bool = False) -> Any:  # fmt: skip
        """Evaluate one batch, on one replica."""
        return loop.on_batch(self, "test", loop.Data(x, y, sample_weight), reset_metrics, return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """Predict one batch, on one replica."""
        return loop.on_batch(self, "predict", loop.Data(x), False, False)

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Whether callbacks are called for every step, not once an execution."""
        self._ipu.options.asynchronous_callbacks = bool(asynchronous)

    def set_replication_options(self, replicated_metric_reduction_method: Any = "NONE") -> None:
        """How metrics of replicas are reduced: NONE, LIST, SUM or MEAN."""
        self._ipu.options.set_replication(replicated_metric_reduction_method)

    def set_gradient_accumulation_options(self, gradient_accumulation_steps_per_replica: int | None = None,
                                          gradient_accumulation_reduction_method: Any = "sum",
                                          use_v2_gradient_accumulation_optimizer: bool = False,
                                          **gradient_accumulation_optimizer_kwargs: Any) -> None:  # fmt: skip
        """Update weights only every few steps, with the gradients of all of them."""
        self._ipu.options.set_accumulation(
            gradient_accumulation_steps_per_replica, gradient_accumulation_reduction_method,
            use_v2_gradient_accumulation_optimizer, gradient_accumulation_optimizer_kwargs,
        )  # fmt: skip
        self._ipu.forget()

    def set_pipelining_options(self, gradient_accumulation_steps_per_replica: int | None = None,
                               device_mapping: list[int] | None = None, accumulate_outfeed: bool | None = None,
                               gradient_accumulation_reduction_method: Any = "sum",
                               **pipelining_kwargs: Any) -> None:  # fmt: skip
        """How a model with pipeline stages runs over its IPUs."""
        self._ipu.options.set_pipelining(
            gradient_accumulation_steps_per_replica, device_mapping, accumulate_outfeed,
            gradient_accumulation_reduction_method, pipelining_kwargs,
        )  # fmt: skip
        self._ipu.forget()

    def set_infeed_queue_options(self, **kwargs: Any) -> None:
        """Options of the feed to the device: prefetch_depth, optimise_latency, device_ordinal."""
        self._ipu.options.set_infeed(kwargs)
        self._ipu.forget()

    def set_outfeed_queue_options(self, **kwargs: Any) -> None:
        """Options of the feed from the device: buffer_depth, optimise_latency."""
        self._ipu.options.set_outfeed(kwargs)
        self._ipu.forget()

    def export_for_ipu_serving(self, export_dir: str, batch_size: int | None = None, output_names: Any = None,
                               preprocessing_step: Any = None, preprocessing_step_signature: Any = None,
                               postprocessing_step: Any = None, postprocessing_step_signature: Any = None,
                               purge_export_dir: bool = False) -> Any:  # fmt: skip
        """Save the model as a SavedModel that stock TensorFlow serves, its weights as constants.

        Args:
          export_dir: where to; must be empty or new.
          batch_size: of requests, where the model's inputs do not say it.
          output_names: of the outputs; `output_0`, ... by default.
          preprocessing_step, postprocessing_step: functions that run before and after the model.
          preprocessing_step_signature, postprocessing_step_signature: specs of their arguments.
          purge_export_dir: delete what is in `export_dir`.

        Returns:
          The exported function.
        """
        around = Around(
            preprocessing_step, preprocessing_step_signature, postprocessing_step, postprocessing_step_signature
        )
        return serving.export_model(self, export_dir, batch_size, output_names, around, purge_export_dir)


class FunctionalExtension(stages.FunctionalStages, ModelExtension):
    """Methods of Functional models in scope."""


class SequentialExtension(stages.SequentialStages, ModelExtension):
    """Methods of Sequential models in scope."""
