"""Hooks of `make docs`: the repository's own documents become pages of the site, and links lead there.

A link to a file that is no document (an example, a source file) becomes its name: the site stands by itself.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# document of the repository -> page of the site
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents that lie outside of docs/."""
    for document, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / document).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """The text of a page with links that hold on the site."""
    source = page.file.src_uri
    documents = {site: document for document, site in PAGES.items()}
    written = documents.get(source, f"docs/{source}")
    folders = PurePosixPath(written).parent, PurePosixPath(source).parent
    return _LINK.sub(lambda link: _on_the_site(link, *folders), markdown)


def _on_the_site(link: re.Match[str], written: PurePosixPath, shown: PurePosixPath) -> str:
    """One link, of a document in the folder `written` of the repository, for a page in the folder `shown`."""
    mark, text, target, anchor = link.group(1), link.group(2), link.group(3), link.group(4) or ""
    file = normpath(str(written / target))
    # other sites; and what is missing is left to mkdocs, which complains of it
    if ":" in target or not (ROOT / file).exists():
        return link.group(0)
    page = PAGES.get(file) or _page_of(file)
    if not page:
        return text if file in text else f"{text} (`{file}`)"
    steps = "../" * (0 if str(shown) == "." else len(shown.parts))
    return f"{mark}[{text}]({steps}{page}{anchor})"


def _page_of(file: str) -> str:
    """The page of a file or folder under docs; none for others."""
    folder = (ROOT / file).is_dir()
    if not file.startswith("docs/") or (folder and not (ROOT / file / "README.md").exists()):
        return ""
    return file.removeprefix("docs/") + "/README.md" * folder
