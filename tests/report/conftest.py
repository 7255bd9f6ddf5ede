"""A browser for the page's tests, and what they ask of every page."""

from pathlib import Path

import pytest
from tests.report.browser import Browser, NoBrowserError, find_browser

PROGRAM = find_browser()
PICTURES = Path(__file__).parents[2] / "out" / "page"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    try:
        held = Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    except (OSError, NoBrowserError) as error:
        pytest.skip(f"{PROGRAM} does not run here: {error}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    yield held
    held.close()


@pytest.fixture
def quiet(browser):
    """The browser, of whose pages nobody may have complained when the test ends, and which fetched nothing."""
    yield browser
    assert browser.complaints == []
    assert browser.ask("kernbench.problems") == []
    assert [url for url in browser.fetched if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len({url for url in browser.fetched if url.startswith("file:")}) == 1


def written(folder, text, name="page.html"):
    file = folder / name
    file.write_text(text)
    return file


def sections(browser):
    return browser.ask(
        "[...document.querySelectorAll('[role=tabpanel]:not([hidden]) section > h2')].map(h => h.textContent)"
    )


def view(browser):
    return browser.ask("(t => [t.from, t.to, t.line.total])(kernbench.timelines.at(-1))")
