"""A report is JSON that its published schema describes, and what it says is what the estimate says."""

import json
from importlib import resources

import attrs
import jsonschema
import pytest

from openipu.model import Pass
from tests.report.samples import SUGGESTIONS, sample, sample_document

SCHEMA = json.loads(resources.files("openipu.report").joinpath("schema.json").read_text(encoding="utf-8"))


@pytest.fixture(params=[{}, {"stages": 1, "replicas": 1, "measured": False}, {"filled": 1.3}], ids=str)
def document(request):
    return sample_document(suggestions=SUGGESTIONS, **request.param)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_a_report_is_what_the_schema_says(document):
    jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), SCHEMA)


def test_the_schema_describes_every_field(document):
    def undescribed(value, schema, path=""):
        for option in schema.get("anyOf", ()):
            if option.get("type") != "null":
                schema = {**schema, **option}
        if isinstance(value, dict) and "properties" in schema:
            for name, item in value.items():
                if name in schema["properties"]:
                    yield from undescribed(item, schema["properties"][name], f"{path}.{name}")
                elif not path.endswith((".options", ".shares")):
                    yield f"{path}.{name}"
        if isinstance(value, list) and value and "items" in schema:
            yield from undescribed(value[0], schema["items"], f"{path}[]")

    assert list(undescribed(document, SCHEMA)) == []


@pytest.mark.parametrize("field", ["prediction", "plan", "operations", "memory"])
def test_the_schema_refuses_a_report_without_a_part(field):
    document = sample_document()
    del document[field]
    with pytest.raises(jsonschema.ValidationError, match=field):
        jsonschema.validate(document, SCHEMA)


def test_predictions_are_the_estimates():
    estimate, document = sample(), sample_document()
    prediction = document["prediction"]
    assert prediction["seconds_per_step"] == pytest.approx(estimate.seconds_per_step, rel=1e-5)
    assert prediction["throughput"] == pytest.approx(estimate.throughput, rel=1e-5)
    assert sum(prediction["shares"].values()) == pytest.approx(estimate.seconds_per_step, rel=1e-4)
    assert prediction["worst_tile_bytes"] == estimate.worst.worst_tile
    assert [one["total"] for one in document["memory"]] == [one.total for one in estimate.memory]
    cycles = sum(one["cycles"] * one["count"] for one in document["operations"])
    assert cycles == pytest.approx(sum(one.total_cycles for one in estimate.operations), rel=1e-4)


def test_liveness_names_the_operation_that_runs():
    estimate, document = sample(), sample_document()
    for memory, written in zip(estimate.memory, document["memory"], strict=True):
        names = [document["operations"][number]["name"] for number, _ in written["liveness"]]
        assert names == [point.operation for point in memory.liveness]


def test_the_bubble_is_the_time_in_which_ipus_wait():
    document = sample_document(stages=2, accumulation=8)
    spans = [span for span in document["pipeline"]["spans"] if span[3] != Pass.UPDATE.value]
    busy = [sum(end - start for ipu, *_, start, end in spans if ipu == number) / 8 for number in (0, 1)]
    length = max(busy) + document["prediction"]["shares"]["bubble"]
    assert document["pipeline"]["bubble"] == pytest.approx(1 - sum(busy) / 2 / length, rel=1e-3)


def test_numbers_that_json_does_not_have_are_left_out():
    from openipu.report.document import Origin
    from openipu.report.document import document as made

    estimate = attrs.evolve(sample(), micro_batch=None)
    json.dumps(made(estimate, Origin()), allow_nan=False)
