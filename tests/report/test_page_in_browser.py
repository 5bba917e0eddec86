"""The page of a report in a real browser: it opens from a file, without a network and without a word in the console."""

import json
import shutil

import pytest

from openipu.report.page import page
from tests.report.samples import SUGGESTIONS, sample_document

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1280,800",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium, of the dev extra")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.implicitly_wait(2)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    one, other = (
        sample_document(suggestions=SUGGESTIONS),
        sample_document(name="wide", stages=1, replicas=1, filled=1.2),
    )
    (folder / "one.html").write_text(page(one), encoding="utf-8")
    (folder / "both.html").write_text(page(one, other), encoding="utf-8")
    (folder / "over.html").write_text(page(other), encoding="utf-8")
    (folder / "other.json").write_text(json.dumps(other), encoding="utf-8")
    (folder / "cut.json").write_text(json.dumps(other)[:500], encoding="utf-8")
    (folder / "newer.json").write_text(json.dumps({**other, "version": 99}), encoding="utf-8")
    return folder


@pytest.fixture
def shown(browser, files):
    """`shown(name, view)`: opens a page at a view; at the end nothing may have been said or fetched."""

    def show(name="one.html", view="summary"):
        browser.get("about:blank")
        browser.get(f"{(files / name).as_uri()}#{view}")
        return Page(browser)

    yield show
    said = [entry["message"] for entry in browser.get_log("browser")]
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert said == []
    assert [name for name in fetched if not name.startswith("data:")] == []


class Page:
    def __init__(self, browser):
        self.browser = browser

    def one(self, selector):
        return self.browser.find_element("css selector", selector)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def texts(self, selector):
        # In one call: asking for elements one by one takes seconds.
        script = "return [...document.querySelectorAll(arguments[0])].map(element => element.innerText)"
        return self.browser.execute_script(script, selector)

    def column(self, view, number):
        return self.texts(f"#view-{view} tbody td:nth-child({number})")

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def run(self, script):
        return self.browser.execute_script(script)


def test_the_summary_says_what_is_predicted_and_what_was_measured(shown):
    page = shown()
    assert page.one("h1").text == "course CNN"
    assert page.one(".chip").text == "Fits in memory"
    kinds = page.texts("#view-summary .figure .kind")
    assert kinds == ["PREDICTED"] * 4 + ["MEASURED HERE"] * 2
    assert page.texts("#view-summary .figure.measured .value") == ["410 ms", "2.5 s"]
    assert "Recomputation" in page.one("#view-summary").text


def test_a_program_too_large_says_by_how_much(shown):
    page = shown("over.html")
    assert page.one(".chip").text.startswith("Does not fit: ")
    assert "run out of memory" in page.one("[role=alert]").text


def test_every_view_opens_by_its_tab(shown):
    page = shown()
    tabs = page.all("[role=tab]")
    assert len(tabs) == 8
    for tab in tabs:
        tab.click()
        panels = [panel for panel in page.all("[role=tabpanel]") if panel.is_displayed()]
        assert [panel.get_attribute("aria-labelledby") for panel in panels] == [tab.get_attribute("id")]
        assert tab.get_attribute("aria-selected") == "true"
        assert panels[0].find_element("css selector", "h2").text


def test_tabs_and_charts_are_used_by_keyboard(shown):
    from selenium.webdriver.common.keys import Keys

    page = shown()
    page.run("document.getElementById('tab-summary').focus()")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.run("return document.activeElement.id") == "tab-liveness"
    chart = page.one("#view-liveness [role=slider]")
    page.run("document.querySelector('#view-liveness [role=slider]').focus()")
    page.press(Keys.HOME)
    assert chart.get_attribute("aria-valuenow") == "0"
    first = chart.get_attribute("aria-valuetext")
    page.press(Keys.ARROW_RIGHT)
    assert chart.get_attribute("aria-valuenow") == "1" and chart.get_attribute("aria-valuetext") != first
    page.press("/")
    assert page.run("return document.activeElement.id") == "search"


def test_operations_are_sorted_by_the_heading_one_presses(shown):
    page = shown(view="operations")
    numbers = [int(text) for text in page.column("operations", 1)]
    assert numbers != sorted(numbers), "the slowest first"
    page.one("#view-operations th:nth-child(1) button").click()
    assert [int(text) for text in page.column("operations", 1)] == sorted(numbers, reverse=True)
    page.one("#view-operations th:nth-child(1) button").click()
    assert [int(text) for text in page.column("operations", 1)] == sorted(numbers)
    assert page.one("#view-operations th:nth-child(1)").get_attribute("aria-sort") == "ascending"
    page.one("#view-operations th:nth-child(5) button").click()
    kinds = page.column("operations", 5)
    assert kinds == sorted(kinds) and len(set(kinds)) > 1


def test_operations_are_found_by_every_word_one_types(shown):
    page = shown(view="operations")
    everything = len(page.column("operations", 1))
    page.one("#search").send_keys("conv_7 MATMUL")
    found = page.column("operations", 2)
    assert 0 < len(found) < everything and all("conv_7/matmul" in text for text in found)
    assert page.one("#view-operations .count").text.startswith(f"{len(found)} of {everything} operations")
    page.one("#search").send_keys(" backward")
    assert set(page.column("operations", 6)) == {"backward"}
    page.one("#search").send_keys(" nothing")
    assert "Nothing matches" in page.one("#view-operations tbody").text


def test_layers_open_to_their_operations(shown):
    page = shown(view="layers")
    page.all("#view-layers .tools button")[0].click()
    labels = page.texts("#view-layers details .label")
    assert {"model", "block_0", "conv_11"} <= {label.strip() for label in labels}


def test_the_pipeline_shows_every_pass_and_zooms(shown):
    page = shown(view="pipeline")
    document = sample_document()
    assert len(page.all("#view-pipeline rect[data-span]")) == len(document["pipeline"]["spans"])
    before = page.run("return document.querySelector('.timeline').scrollWidth")
    page.all("#view-pipeline .tools button")[0].click()
    assert page.run("return document.querySelector('.timeline').scrollWidth") > 1.8 * before


def test_two_reports_are_compared_side_by_side(shown):
    page = shown("both.html", "compare")
    table = page.one("table[aria-label=Comparison]").text
    assert "A: course CNN" in table and "B: wide" in table
    assert "Fits yes no differs" in table.replace("\n", " ")


def test_another_report_is_chosen_from_a_file_or_refused_in_a_sentence(shown, files):
    page = shown(view="compare")
    page.one("#other-file").send_keys(str(files / "other.json"))
    assert "B: wide" in page.one("table[aria-label=Comparison]").text
    for name, reason in (
        ("cut.json", "not complete JSON"),
        ("newer.json", "has version 99; this page reads version 1"),
    ):
        page.one("#other-file").send_keys(str(files / name))
        page.browser.implicitly_wait(0)
        for _ in range(100):
            if reason in page.one("#view-compare [role=status]").text:
                break
        assert reason in page.one("#view-compare [role=status]").text
        assert page.all("table[aria-label=Comparison]") == []


def test_nothing_is_wider_than_a_telephone(shown, browser):
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page = shown()
        for view in ("summary", "memory", "liveness", "operations", "layers", "pipeline", "compare", "model"):
            page.run(f"location.hash = '{view}'")
            page.one(f"#view-{view} h2")
            assert page.run("return document.documentElement.scrollWidth") <= 360, view
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_light_and_dark_follow_the_system_until_one_chooses(shown, browser):
    def ground():
        return browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor")

    seen = []
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page = shown()
        seen.append(ground())
    assert seen[0] != seen[1]
    page.one("#head .icon").click()
    assert ground() == seen[0]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
