"""A process that builds the store of drawn images so slowly that it can be met, or killed, half way."""

import subprocess
import sys
from pathlib import Path

from support.commands import ROOT

from trainables.data.sets.glyphs import Glyphs

GLYPHS = Glyphs(num_classes=4, images_per_class=12)

SLOW_BUILD = """
import os, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one thread reads
from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.spec import StoreSpec

class SlowGlyphs(Glyphs):
    def read(self, key):
        print(key, flush=True)
        time.sleep(0.02)
        return super().read(key)

dataset = SlowGlyphs(num_classes=4, images_per_class=12)
StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=40, cache=sys.argv[1]).make()
"""


def slow_build(cache: Path, *, read: int) -> subprocess.Popen[str]:
    """Start a process that builds the store of ``GLYPHS`` in a second; return once some of 48 images are read."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SLOW_BUILD, str(cache)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert all(process.stdout.readline().startswith("glyph-") for _ in range(read))
    return process
