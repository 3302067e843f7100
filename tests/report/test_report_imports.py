"""Reports are read far more often than made: what trains or tests hypotheses is imported when it is used."""

import subprocess
import sys

HEAVY = ("torch", "ray", "mlflow", "scipy", "sklearn", "pandas")
MODULES = (
    "search.report.sections.models",
    "search.report.comparison",
    "search.driver.synchronise",
    "search.report.summary",
    "search.text_table",
    "search.campaigns.prepare",
    "search.campaigns.result",
    "search.campaigns.tables",
)


def test_reports_and_campaigns_load_nothing_heavy() -> None:
    program = f"import sys, {', '.join(MODULES)}; print(*(name for name in {HEAVY} if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "\n"
