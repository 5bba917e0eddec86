"""The base of optimizers whose state has types of its own: update rules on tensors, between Keras 3 and Keras 2."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from openipu.tensorflow.addons.keras import IS_KERAS_2, keras
from openipu.tensorflow.boundary import shared_name
from openipu.tensorflow.ipu.ops.functional_ops import outlined_function

_Stock: Any = keras.optimizers.legacy.Optimizer if IS_KERAS_2 else keras.optimizers.Optimizer

Slots = dict[str, tf.Tensor]


class IpuOptimizerBase(_Stock):
    """An optimizer that keeps its state in types of the user's choice and computes in another.

    A subclass names its state in `_slot_names_of()` and computes `_updated(...)`.

    Args:
      name: of the optimizer.
      optimizer_compute_precisions: the types that updates are computed in.
      outline_apply_gradients: whether an IPU would share the code of updates; changes nothing here.
      outline_apply_gradients_kwargs: arguments of `outlined_function`.
      **kwargs: as of the stock optimizer; `learning_rate` among them.
    """

    _number_of_precisions = 1

    def __init__(
        self,
        name: str,
        optimizer_compute_precisions: Sequence[Any] = (tf.float32,),
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        precisions = tuple(tf.as_dtype(precision) for precision in optimizer_compute_precisions)
        if len(precisions) != self._number_of_precisions:
            raise ValueError(
                f"optimizer_compute_precisions must have {self._number_of_precisions} entries. "
                f"Received: optimizer_compute_precisions={[p.name for p in precisions]}."
            )
        rate = kwargs.pop("learning_rate", 0.001)
        if IS_KERAS_2:
            super().__init__(name, **kwargs)
            self._set_hyper("learning_rate", rate)
            self._set_hyper("decay", self._initial_decay)
        else:
            super().__init__(learning_rate=rate, name=name, **kwargs)
        self._precisions = precisions
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = outline_apply_gradients_kwargs or {}
        self._own_slots: dict[tuple[int, str], Any] = {}

    @property
    def optimizer_compute_precisions(self) -> tuple[tf.DType, ...]:
        """The types that updates are computed in."""
        return self._precisions

    def _slot_names_of(self) -> tuple[str, ...]:
        return ()

    def _updated(
        self, variable: Any, weight: tf.Tensor, gradient: tf.Tensor, slots: Slots, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Slots]:
        """The new value of a weight and of its state, all in the first of the precisions."""
        raise NotImplementedError

    def get_slot_dtype(self, var: Any, slot_name: str) -> Any:
        """The type of a part of a variable's state: that of the optimizer's `<slot name>_dtype`, or the variable's."""
        return getattr(self, f"{slot_name}_dtype", None) or _dtype(var)

    def add_slot(
        self, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None, dtype: Any = None
    ) -> Any:
        """Make a part of a variable's state, in the type of `get_slot_dtype` by default."""
        return self._add_slot(var, slot_name, dtype or self.get_slot_dtype(var, slot_name), initializer, shape)

    def add_slot_with_dtype(self, var: Any, slot_name: str, dtype: Any, initializer: Any = "zeros") -> Any:
        """Make a part of a variable's state in a type."""
        return self._add_slot(var, slot_name, dtype, initializer, None)

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """A part of a variable's state."""
        return self._own_slots[_key(var), slot_name]

    def _add_slot(self, var: Any, slot_name: str, dtype: Any, initializer: Any, shape: Any) -> Any:
        key = (_key(var), slot_name)
        if key not in self._own_slots:
            sizes = tuple(var.shape if shape is None else shape)
            make = self._keras2_slot if IS_KERAS_2 else self._keras3_slot
            self._own_slots[key] = make(var, slot_name, tf.as_dtype(dtype), initializer, sizes)
        return self._own_slots[key]

    def _keras3_slot(self, var: Any, slot_name: str, dtype: tf.DType, initializer: Any, shape: tuple) -> Any:
        name = f"{getattr(var, 'path', var.name).replace('/', '_')}_{slot_name}"
        return self.add_variable(shape=shape, initializer=initializer, dtype=dtype.name, name=name)

    def _keras2_slot(self, var: Any, slot_name: str, dtype: tf.DType, initializer: Any, shape: tuple) -> Any:
        make = keras.initializers.get(initializer)
        with self._distribution_strategy_scope():
            slot = tf.Variable(
                lambda: make(shape, dtype=dtype), trainable=False, dtype=dtype, name=f"{shared_name(var)}/{slot_name}"
            )
        from openipu.tensorflow.keras.versions import keras2

        keras2.keep_slot(self, var, slot_name, slot)
        return slot

    def build(self, variables: Sequence[Any]) -> None:
        """Keras 3: make the state of all variables."""
        if self.built:
            return
        super().build(variables)
        self._create_slots(variables)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for variable in var_list:
            for name in self._slot_names_of():
                self.add_slot(variable, name)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Keras 3: update one variable."""
        if isinstance(gradient, tf.IndexedSlices):
            raise _sparse(self)
        self._apply(gradient, variable, learning_rate)

    def _resource_apply_dense(self, grad: tf.Tensor, handle: Any, apply_state: Any = None) -> Any:
        return self._apply(grad, handle, self._decayed_lr(tf.float32))

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any, apply_state: Any = None) -> None:
        raise _sparse(self)

    def _apply(self, gradient: tf.Tensor, variable: Any, rate: Any) -> Any:
        names, precision = self._slot_names_of(), self._precisions[0]
        stored = {name: self._own_slots[_key(variable), name] for name in names}

        def update(gradient: tf.Tensor) -> tuple[tf.Tensor, Slots]:
            values = {name: tf.cast(tf.convert_to_tensor(slot), precision) for name, slot in stored.items()}
            step = tf.cast(tf.convert_to_tensor(self.iterations), precision) + 1
            weight = tf.cast(tf.convert_to_tensor(variable), precision)
            return self._updated(variable, weight, tf.cast(gradient, precision), values, tf.cast(rate, precision), step)

        function: Callable = update
        if self.outline_apply_gradients:
            function = outlined_function(update, **self.outline_apply_gradients_kwargs)
        weight, slots = function(tf.convert_to_tensor(gradient))
        done = [slot.assign(tf.cast(slots[name], _dtype(slot))) for name, slot in stored.items()]
        done.append(variable.assign(tf.cast(weight, _dtype(variable))))
        return tf.group(*(d for d in done if d is not None)) if IS_KERAS_2 else None

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        rate = {"learning_rate": self._serialize_hyperparameter("learning_rate")} if IS_KERAS_2 else {}
        return {
            **super().get_config(),
            **rate,
            "optimizer_compute_precisions": [precision.name for precision in self._precisions],
            "outline_apply_gradients": self.outline_apply_gradients,
            "outline_apply_gradients_kwargs": self.outline_apply_gradients_kwargs,
        }


def dtype_name(dtype: Any) -> str | None:
    """A type as a configuration says it."""
    return None if dtype is None else tf.as_dtype(dtype).name


def _dtype(variable: Any) -> tf.DType:
    # In mixed precision variables of Keras 2 say the type that they are read in.
    return tf.as_dtype(getattr(variable, "true_dtype", None) or variable.dtype)


def _key(var: Any) -> int:
    """What stays the same of a variable: Keras 3 updates the one inside its own, Keras 2 may wrap it."""
    inner = getattr(var, "_variable", var) if IS_KERAS_2 else getattr(var, "_value", var)
    return id(inner)


def _sparse(optimizer: Any) -> NotImplementedError:
    return NotImplementedError(
        f"{type(optimizer).__name__} does not support sparse gradients. Use ipu_tensorflow_addons.keras.layers."
        "Embedding, whose gradient is dense, or train in an IPUStrategy scope."
    )
