"""Takes the pictures of docs/images: parts of the pages that `make demo` writes, by a headless Chromium.

`make demo && .venv/bin/python tools/pictures.py`; KERNBENCH_CHROMIUM names a browser that is not on the PATH.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
# the browser of the tests: no other is driven from Python without a further package
from tests.report.browser import Browser, find_browser  # noqa: E402

FOLDER = ROOT / "docs" / "images"
WIDTH = 1000
# colours of a picture: enough for text and bars, and a fraction of the bytes
COLOURS = 96
# picture -> page, the heading it begins at (none: at the top), height
PICTURES = {
    "report.png": ("milestone.html", "", 560),
    "timeline.png": ("milestone.html", "Timeline", 700),
    "critical-path.png": ("milestone.html", "Critical path", 760),
    "race.png": ("race.html", "", 620),
}
_TO_HEADING = """(() => {
  const seen = (h) => h.textContent.startsWith(%r) && h.getBoundingClientRect().height;
  const heading = [...document.querySelectorAll("h2")].find(seen);
  scrollTo(0, heading.getBoundingClientRect().top + scrollY - 12);
})()"""


def take(browser: Browser, name: str) -> None:
    """Write one picture."""
    page, heading, height = PICTURES[name]
    browser.show(ROOT / "out" / page, WIDTH, height)
    if heading:
        browser.ask(_TO_HEADING % heading)
        browser.frame()
    browser.picture(FOLDER / name, whole=False)
    picture = Image.open(FOLDER / name).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(FOLDER / name, optimize=True)


def main() -> None:
    """Take all pictures."""
    program = find_browser()
    if program is None:
        sys.exit("no Chromium was found: install one, or name it in KERNBENCH_CHROMIUM")
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as profile:
        browser = Browser(program, Path(profile))
        try:
            for name in PICTURES:
                take(browser, name)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
