"""What to expect of the names of `ipu_tensorflow_addons`, where there is something to say (`openipu.compatibility`)."""

from openipu.compatibility import Note, works

_AUTO_PIPELINE = "keras.experimental.auto_pipeline"

NOTES: dict[str, Note] = {
    f"{_AUTO_PIPELINE}.utils.types.*": works("the fields are openipu's own: those of the original are not public"),
    f"{_AUTO_PIPELINE}.utils.pva_utils.get_vertex_instance_state": works("0: `get_vertex_code` counts it"),
    f"{_AUTO_PIPELINE}.utils.pva_utils.*": works("reads openipu's reports, which are predicted"),
    f"{_AUTO_PIPELINE}.utils.profiler.*": works("`ReportHelper` of this module, or a path, is the `report_helper`"),
    f"{_AUTO_PIPELINE}.prediction.*": works("profiles are predicted; nothing runs"),
}
