"""Turns runs into text: tables and explanations as rich renderables. Nothing here prints."""

from kernbench.report.compare.difference import Difference, difference, difference_text
from kernbench.report.compare.ranking import Contender, ranking_table, ranking_text
from kernbench.report.compare.titles import titles
from kernbench.report.export.trace import trace_bytes
from kernbench.report.page import page_html
from kernbench.report.text.findings import finding_text, findings_text, formal_text
from kernbench.report.text.printed import printed_text
from kernbench.report.text.tables import commands_table, launches_table, runs_table
from kernbench.report.text.verdict import comparison_text, run_text
from kernbench.report.time.explanation import no_time_text, time_text, times_text
from kernbench.report.time.pipeline import pipeline_text
from kernbench.report.time.tasks import tasks_text

__all__ = [
    "Contender",
    "Difference",
    "commands_table",
    "comparison_text",
    "difference",
    "difference_text",
    "finding_text",
    "findings_text",
    "formal_text",
    "launches_table",
    "no_time_text",
    "page_html",
    "pipeline_text",
    "printed_text",
    "ranking_table",
    "ranking_text",
    "run_text",
    "runs_table",
    "tasks_text",
    "time_text",
    "times_text",
    "titles",
    "trace_bytes",
]
