"""The facts about each kind of IPU, compared with its published figures."""

import subprocess
import sys

import pytest

from openipu import hardware
from openipu.hardware import BOW, C600, MK1, MK2


@pytest.mark.parametrize(
    "target, tflops_half, tflops_float",
    [(MK1, 124.5, 31.1), (MK2, 250, 62.5), (BOW, 350, 87), (C600, 280, 70)],
)
def test_peak_rates_are_those_of_the_data_sheets(target, tflops_half, tflops_float):
    assert target.peak_flops / 1e12 == pytest.approx(tflops_half, rel=0.01)
    assert target.peak_flops_float / 1e12 == pytest.approx(tflops_float, rel=0.01)


@pytest.mark.parametrize("target, mebibytes", [(MK1, 304), (MK2, 897), (BOW, 897)])
def test_memory_is_all_tiles_together(target, mebibytes):
    assert target.memory == mebibytes * 2**20


def test_float_partials_halve_the_rate_from_mk2_on():
    assert MK1.peak_flops_half_float == MK1.peak_flops
    assert 2 * BOW.peak_flops_half_float == BOW.peak_flops


def test_aggregate_bandwidths():
    assert MK1.exchange_bandwidth == pytest.approx(7.78e12, rel=0.001)
    assert BOW.exchange_bandwidth == pytest.approx(10.9e12, rel=0.001)
    assert MK2.memory_bandwidth == pytest.approx(47e12, rel=0.01)
    assert MK2.pair_bandwidth == 96e9


def test_cycles_become_seconds():
    assert BOW.seconds(1.85e9) == 1.0


def test_targets_are_found_by_poplar_name():
    assert [hardware.target_for(name) for name in ("ipu1", "ipu2", "ipu21")] == [MK1, MK2, C600]
    with pytest.raises(ValueError, match=r"ipu1, ipu2, ipu21.*Received: 'ipu3'"):
        hardware.target_for("ipu3")


def test_a_bow_pod64_has_the_published_totals():
    pod = hardware.parse_system("bow-pod64")
    assert pod.count * pod.target.tiles == 94_208
    assert pod.count * pod.target.peak_flops / 1e15 == pytest.approx(22, rel=0.02)


def test_the_hardware_room_imports_no_framework():
    code = "import sys, openipu.hardware; print(sorted({'tensorflow', 'keras', 'torch', 'jax'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
