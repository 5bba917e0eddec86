"""`gc-info` and `gc-inventory` tell what the virtual devices are."""

import json
import re

import pytest

from openipu import hardware
from openipu.cli.gc_info import main
from openipu.cli.gc_inventory import main as inventory


def facts(output):
    return dict(line.split(": ", 1) for line in output.splitlines())


@pytest.mark.parametrize("option", ["-l", "--list-devices"])
def test_the_list_has_every_device_with_its_members(call, option):
    listed: dict[int, list[int]] = {}
    for line in call(main, option).output.splitlines():
        if found := re.match(r"-\+- Id: \[(\d+)\], target: \[Virtual\b.*\]", line):
            listed[int(found[1])] = []
        elif found := re.match(r" \|--- Id: \[(\d+)\], DNC Id: \[(\d+)\], IPU-M host: \[\S+\], IPU#: \[\d\]", line):
            members = listed[max(listed)]
            assert int(found[2]) == len(members)
            members.append(int(found[1]))
    devices = {device.id: device for device in hardware.current_system().devices()}
    assert listed == {number: [] if d.count == 1 else list(d.ipus) for number, d in devices.items()}


def test_attributes_come_from_the_target(call, monkeypatch):
    monkeypatch.setenv("OPENIPU_SYSTEM", "mk2-pod4")
    told = facts(call(main, "--device-info", "-d", "4").output)
    target = hardware.MK2
    assert told["clock"] == f"{target.clock_hz / 1e6:.0f}MHz"
    assert int(told["number of tiles"]) == target.tiles
    assert int(told["memory per tile"]) == target.bytes_per_tile
    assert int(told["exchange memory per IPU"]) == target.streaming_memory
    assert (told["ipu architecture"], told["partition id"], told["number of IPUs"]) == ("ipu2", "mk2-pod4", "2")
    assert (told["link speed"], told["link width"], told["remote buffers"]) == ("16 GT/s", "8", "1")
    assert "virtual" in told["board type"] and told["attached"] == "no"


def test_a_held_device_names_its_holder(call, program):
    program.tell("attach 16")
    assert facts(call(main, "-i", "-d", "1").output)["attached process"].startswith(f"{program.pid} python")
    assert facts(call(main, "-i", "-d", "2").output)["attached"] == "no"


@pytest.mark.parametrize("system", ["bow-pod4", "mk1-pod4"])
def test_the_overview_draws_every_tile(call, monkeypatch, system):
    monkeypatch.setenv("OPENIPU_SYSTEM", system)
    tiles = hardware.current_system().target.tiles
    hardware.attach(hardware.current_system().by_id(0))
    output = call(main, "--tile-overview", "-d", "4").output.partition("\n")[2]
    assert (output.count("#"), output.count(".")) == (tiles, tiles)


def test_what_is_missing_or_wrong_is_said(call):
    assert "--list-devices" in call(main).output
    result = call(main, "--device-info")
    assert result.exit_code == 2 and "Add -d 0" in result.output
    result = call(main, "-i", "-d", "31")
    assert result.exit_code == 1 and "ids 0 to 30" in result.output


def test_the_inventory_has_every_device_as_json(call, program):
    program.tell("acquire 1")
    content = json.loads(call(inventory, "-j").output)
    assert [device["id"] for device in content["devices"]] == [str(number) for number in range(31)]
    assert {device["remote buffers"] for device in content["devices"]} == {"1"}
    assert [device["id"] for device in content["devices"] if device["attached"] == "yes"] == [
        "0",
        "16",
        "24",
        "28",
        "30",
    ]


def test_the_inventory_as_text_says_the_same(call):
    blocks = call(inventory).output.split("\n\n")[1:]
    assert [facts(block) for block in blocks] == json.loads(call(inventory, "-j").output)["devices"]
