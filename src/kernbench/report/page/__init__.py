"""Runs as one self-contained HTML page: no network, no server, no second file."""

from kernbench.report.page.document import page_html

__all__ = ["page_html"]
