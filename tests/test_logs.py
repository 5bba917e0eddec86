"""The log: one line a record, where and as much as asked, and nothing from TensorFlow's libraries."""

import logging
import os
import re
import subprocess
import sys

import pytest

from openipu import logs, quiet

SAY = """
import logging
from openipu import logs
logs.install(); logs.install()
logging.getLogger("openipu.compiler").info("compiled %d", 3)
logging.getLogger("openipu.compiler").warning("careful")
"""


def python(code, **variables):
    hidden = ("TF_CPP_MIN_LOG_LEVEL", "OPENIPU_LOG", "POPLAR_LOG_LEVEL", "TF_POPLAR_VLOG_LEVEL", "POPTORCH_LOG_LEVEL")
    hidden += ("TF_ENABLE_ONEDNN_OPTS",)
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment | variables, capture_output=True, text=True, check=True
    )


def test_lines_have_a_time_a_name_and_a_level():
    line = r"\[\d\d:\d\d:\d\d\.\d{3}\] \[openipu\.compiler\] "
    assert re.fullmatch(line + r"\[warning\] careful\n", python(SAY).stderr)
    told = python(SAY, TF_POPLAR_VLOG_LEVEL="1").stderr
    assert re.fullmatch(line + r"\[info\] compiled 3\n" + line + r"\[warning\] careful\n", told)
    assert python(SAY, OPENIPU_LOG="off").stderr == ""


def test_a_program_that_has_set_up_logging_hears_everything_once():
    done = python("import logging; logging.basicConfig(format='mine: %(message)s')" + SAY)
    assert done.stderr == "mine: careful\n"
    done = python("import logging; logging.basicConfig(format='mine: %(message)s', level=logging.INFO)" + SAY)
    assert done.stderr == "mine: compiled 3\nmine: careful\n"


def test_the_log_goes_where_it_is_sent(tmp_path):
    assert "careful" in python(SAY, POPLAR_LOG_DEST="stdout").stdout
    file = tmp_path / "log.txt"
    assert python(SAY, POPLAR_LOG_DEST=str(file)).stderr == ""
    assert file.read_text().endswith("[warning] careful\n")


def test_poptorch_writes_where_it_is_told(tmp_path):
    made = logs.handler(str(tmp_path / "poptorch.txt"))
    made.emit(logging.makeLogRecord({"name": "poptorch::python", "levelname": "INFO", "msg": "hello"}))
    made.close()
    assert (tmp_path / "poptorch.txt").read_text().endswith("[poptorch::python] [info] hello\n")


def test_only_the_noise_of_libraries_is_left_out(capfd):
    with quiet.without_noise():
        os.write(2, b"I0000 1 cudart_stub.cc:31] Could not find cuda drivers\nsomething broke\n")
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "something broke\nafterwards\n"


IPU = """
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    model.compile(loss="mse", optimizer="sgd")
    model.fit(tf.ones((8, 4)), tf.ones((8, 2)), batch_size=4, verbose=0)
"""


def test_an_ipu_program_says_what_it_does_and_libraries_say_nothing():
    lines = python(IPU, TF_POPLAR_VLOG_LEVEL="1").stderr.splitlines()
    assert all(re.match(r"\[[\d:.]+\] \[openipu\.", line) for line in lines), lines
    text = "\n".join(lines)
    assert "TensorFlow device /device:IPU:0 attached to 2 IPU(s) with Poplar device ID(s): 16" in text
    assert "Automatically replicating the TensorFlow model by a factor of 2." in text


LOOK = """
import importlib.util, os
importlib.util.find_spec("tensorflow")
print(os.environ.get("TF_CPP_MIN_LOG_LEVEL"), os.environ.get("TF_ENABLE_ONEDNN_OPTS"))
"""
UNUSED = "if not importlib: from {} import {}\n"


@pytest.mark.parametrize(
    ("names", "variables", "level", "onednn"),
    [
        (("tensorflow.python", "keras"), {}, "None", "None"),
        (("tensorflow.python", "ipu"), {}, "3", "0"),
        (("tensorflow.keras.ipu", "PipelineStage"), {}, "3", "0"),
        (("ipu_tensorflow_addons.keras", "layers"), {}, "3", "0"),
        (("tensorflow.python", "ipu"), {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_ENABLE_ONEDNN_OPTS": "1"}, "0", "1"),
        (("tensorflow.python", "ipu"), {"TF_CPP_VMODULE": "x=1"}, "None", "0"),
    ],
)
def test_only_programs_that_name_ipu_have_tensorflow_set_up_and_the_user_goes_first(names, variables, level, onednn):
    assert python(LOOK + UNUSED.format(*names), **variables).stdout.split() == [level, onednn]


def test_xla_does_not_advise_users_of_poptorch_to_file_bugs():
    # XLA's alarm of slow compilations is an error to it; 3 lets only fatal ones through, and JAX itself would set 1.
    show = "import os, openipu.torch, jax; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    assert python(show).stdout.strip() == "3"
    assert python(show, TF_CPP_MIN_LOG_LEVEL="1").stdout.strip() == "1"
