"""The page in Chromium, as people meet it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reporting.html.records import audit, every_kind, written

pytestmark = pytest.mark.browser

# Set where the browser has to be there: a skip would go unseen.
IS_REQUIRED = bool(os.environ.get("TF_AMP_KIT_BROWSER"))
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
NUM_LAYERS = 2000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sync_playwright = None
    if found is None or sync_playwright is None:
        missing = "Chromium" if found is None else "playwright"
        if IS_REQUIRED:
            pytest.fail(f"{missing} is not installed, and TF_AMP_KIT_BROWSER asks for it")
        pytest.skip(f"{missing} is not installed")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    written(every_kind(), folder)
    return folder / "report.html"


class Tab:
    """A page, with all that it complained of and asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("a dialog"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def column(self, table: int, column: int) -> list[str]:
        script = """([table, column]) => Array.from(
            document.querySelectorAll('table')[table].tBodies[0].rows)
            .filter(row => !row.hidden).map(row => row.cells[column].innerText)"""
        found: list[str] = self.page.evaluate(script, [table, column])
        return found


@pytest.fixture
def tab(browser: Any, file: Path) -> Iterator[Tab]:
    made = Tab(browser, file)
    yield made
    made.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_it_opens_without_complaint(browser: Any, file: Path, size: str, scheme: str) -> None:
    width, height = SIZES[size]
    options = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    tab = Tab(browser, file, **options)
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
    # Wide tables scroll by themselves; the page never does.
    assert tab.page.evaluate("document.documentElement.scrollWidth") == width
    tab.context.close()


def test_the_colours_follow_the_system(browser: Any, file: Path) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        tab = Tab(browser, file, color_scheme=scheme)
        grounds.append(tab.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        tab.context.close()
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 23, 28)"]


def test_a_table_sorts_by_value_both_ways(tab: Tab) -> None:
    # The parts of the estimate, in KiB and bytes.
    place = tab.page.evaluate(
        "Array.from(document.querySelectorAll('h3')).findIndex(h => h.innerText === 'By layer')"
    )
    header = tab.page.locator("table").nth(place).locator("th").nth(1)
    before = tab.column(place, 1)
    header.get_by_role("button").click()
    rising = tab.column(place, 1)
    assert header.get_attribute("aria-sort") == "ascending"
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert tab.column(place, 1) == rising[::-1] != before[:0]
    sizes = [float(one.split()[0]) for one in rising]
    assert sizes == sorted(sizes)


def test_a_table_sorts_by_keyboard(tab: Tab) -> None:
    button = tab.page.locator("table").nth(1).locator("th button").first
    button.focus()
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Enter")
    assert tab.column(1, 0) == ["block_2/dense", "block_1/dense", "block_0/dense"]


def test_the_search_narrows_every_table_of_layers(tab: Tab) -> None:
    tab.page.fill("#search", "block_1")
    # The findings and the layers of the audit.
    assert tab.column(0, 2) == tab.column(1, 0) == ["block_1/dense"]
    assert tab.page.inner_text("#matches") == "2 rows of layers"
    tab.page.fill("#search", "")
    assert len(tab.column(1, 0)) == 3


def test_a_search_without_a_match_says_so(tab: Tab) -> None:
    tab.page.fill("#search", "no such layer")
    assert tab.page.locator(".empty:visible").count() > 1


def test_without_javascript_all_can_be_read(browser: Any, file: Path) -> None:
    tab = Tab(browser, file, java_script_enabled=False)
    assert tab.page.locator("tbody tr").count() > 50
    assert tab.page.locator("#search:visible").count() == 0
    tab.context.close()


def test_a_print_shows_whole_tables(browser: Any, file: Path) -> None:
    tab = Tab(browser, file)
    tab.page.emulate_media(media="print")
    cut = tab.page.evaluate(
        "Array.from(document.querySelectorAll('.scroll'))"
        ".filter(box => box.scrollHeight > box.clientHeight + 1).length"
    )
    assert (cut, tab.page.locator("nav:visible").count()) == (0, 0)
    tab.context.close()


def test_two_thousand_layers_can_be_searched_and_sorted(browser: Any, tmp_path: Path) -> None:
    written(audit(NUM_LAYERS), tmp_path)
    tab = Tab(browser, tmp_path / "report.html")
    tab.page.fill("#search", "block_1999/")
    assert tab.column(1, 0) == ["block_1999/dense"]
    tab.page.fill("#search", "")
    tab.page.locator("table").nth(1).locator("th button").first.click()
    assert len(tab.column(1, 0)) == NUM_LAYERS
    assert tab.complaints == []
    tab.context.close()
