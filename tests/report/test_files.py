"""Reports are written whole or not at all, and what is no report is refused in one sentence."""

import json
import os

import pytest

from openipu.errors import ReportError
from openipu.report import writing
from openipu.report.reading import read
from openipu.report.writing import check_folder, write
from tests.report.samples import sample_document


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "report"


def test_what_is_written_is_read_again(folder):
    document = sample_document()
    page = write(folder, document)
    assert page == folder / "report.html" and page.stat().st_size > 10_000
    for path in (folder, folder / "report.json", folder / "profile.pop", folder.parent):
        assert read(path) == json.loads(json.dumps(document))
    assert sorted(os.listdir(folder)) == ["profile.pop", "report.html", "report.json"]


def test_a_second_report_takes_the_place_of_the_first(folder):
    write(folder, sample_document(name="earlier one"))
    write(folder, sample_document(name="second"))
    assert read(folder / "profile.pop")["program"]["name"] == "second"
    assert "earlier one" not in (folder / "report.html").read_text(encoding="utf-8")


def test_a_name_cannot_break_the_page(folder):
    name = "</script><script>alert(1)</script>@@other@@<!--"
    text = write(folder, sample_document(name=name)).read_text(encoding="utf-8")
    assert "<script>alert" not in text and text.count("</script>") == 3
    assert read(folder)["program"]["name"] == name


def test_a_page_that_cannot_be_finished_leaves_the_old_one(folder, monkeypatch):
    write(folder, sample_document(name="old"))
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "replace", full)
    with pytest.raises(ReportError, match=r"cannot be written: No space left on device\. Choose another"):
        write(folder, sample_document(name="new"))
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ReportError, match=r"The report directory .*taken cannot be written: "):
        check_folder(tmp_path / "taken")
    with pytest.raises(ReportError, match=r"taken.inside cannot be written: Not a directory"):
        check_folder(tmp_path / "taken" / "inside")
    assert (tmp_path / "taken").read_text() == "mine"


def refusal(path):
    with pytest.raises(ReportError) as error:
        read(path)
    return str(error.value)


def test_a_report_that_was_cut_off_is_refused(folder):
    write(folder, sample_document())
    file = folder / "report.json"
    file.write_text(file.read_text()[:3000])
    assert "is not complete JSON" in refusal(folder) and "openipu report" in refusal(folder)
    file.write_text("")
    assert "ends too early" in refusal(folder)


@pytest.mark.parametrize(("version", "advice"), [(2, "Update openipu"), (0, "Make it again"), (None, "Make it again")])
def test_a_report_of_another_version_is_refused(tmp_path, version, advice):
    (tmp_path / "report.json").write_text(json.dumps({**sample_document(), "version": version}))
    text = refusal(tmp_path)
    assert f"has version {version!r}; this openipu reads version 1" in text and advice in text


def test_what_is_no_report_is_refused(tmp_path):
    assert "There is no report" in refusal(tmp_path / "nothing.json")
    assert "There is no report.json in the folder" in refusal(tmp_path)
    (tmp_path / "profile.pop").write_bytes(b"\x89\xff\x00\xfe")
    assert "it is not text" in refusal(tmp_path / "profile.pop")
    (tmp_path / "list.json").write_text("[]")
    assert "no report of openipu" in refusal(tmp_path / "list.json")
    document = sample_document()
    del document["memory"]
    (tmp_path / "part.json").write_text(json.dumps(document))
    assert "lacks memory" in refusal(tmp_path / "part.json")


def test_a_folder_of_several_reports_asks_which(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name, sample_document(name=name))
    text = refusal(tmp_path)
    assert "several reports" in text and str(tmp_path / "a") in text
