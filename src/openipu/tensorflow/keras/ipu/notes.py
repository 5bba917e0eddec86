"""What to expect of the names of `keras.ipu`, where there is something to say (`openipu.compatibility`)."""

from openipu.compatibility import Note, accepted, works

NOTES: dict[str, Note] = {
    "extensions.extensions_base.KerasExtensionBase": works("the same class as ModelExtension"),
    "extensions.extensions_base.logged_steps_per_execution_warning": accepted("always False"),
}
