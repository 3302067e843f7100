"""A driver that sees another clock; what it starts sees the right one."""

import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    driver = Path(__file__).parents[2] / "support" / "sleeping_driver.py"
    sys.argv[0] = str(driver)
    runpy.run_path(str(driver), run_name="__main__")
