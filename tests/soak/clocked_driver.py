"""A driver with a wrong clock; its child processes see the right one."""

import os
import runpy

if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    runpy.run_module("holdout", run_name="__main__")
