"""Run in, text out: tables and explanations as rich renderables. Nothing here prints."""

from kernbench.report.compare import Difference, difference, difference_text
from kernbench.report.findings import finding_text, findings_text, formal_text
from kernbench.report.page import page_html
from kernbench.report.pipeline import pipeline_text
from kernbench.report.printed import printed_text
from kernbench.report.ranking import Contender, ranking_table, ranking_text
from kernbench.report.tables import commands_table, launches_table, runs_table
from kernbench.report.tasks import tasks_text
from kernbench.report.time import no_time_text, time_text
from kernbench.report.titles import titles
from kernbench.report.trace import trace_bytes
from kernbench.report.verdict import comparison_text, run_text

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
    "titles",
    "trace_bytes",
]
