"""Compilation ahead of time, under the path IPU programs know."""

from openipu.tensorflow.applications.compilation import experimental_application_compile_op

__all__ = ["experimental_application_compile_op"]
