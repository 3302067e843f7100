"""The filter of a job's log, with lines that Ray 2.60 writes when a machine dies."""

import pytest

from search.jobs.log import LogFilter

OURS = (
    "Searching …\n",
    "\x1b[36m(TrainingTrial pid=214, ip=10.0.0.7)\x1b[0m OPENMP DISPLAY ENVIRONMENT BEGIN\n",
    "\x1b[36m(ResourceTrainable pid=214)\x1b[0m     raise RuntimeError\n",
    "small/pnp trial 3 was lost (ActorUnavailableError); retrying.\n",
    "MLflow is 12 trials behind and catching up …\n",
    "                 searched  best\n",
    "  pnp                   3  0.51\n",
    "\n",
    "(TrainingTrial pid=214) [2026-11-21] a date\n",
    "(raylets are Ray's; this line is ours)\n",
    "2026-11-21 is a day",  # where it was cut
)
RAYS = (
    "2026-11-21 23:20:00,123\tINFO job_manager.py:568 -- Runtime env is setting up.\n",
    "Running entrypoint for job holdout-small-1: cd && exec python -P -m holdout run x\n",
    "\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error.\n",
    "\x1b[33m(raylet, ip=10.0.0.7)\x1b[0m Raylet is terminated. Last 20 lines of the Raylet logs:\n"
    "    [state-dump] \tNodeManager.deadline_timer.flush_free_objects - 1 total (1 active)\n"
    "    [2026-11-21 23:22:01,126 I 15971 15971] (raylet) accessor.cc:475: Received address\n"
    "    - objects spillable: 0\n"
    "    \n"
    "\n",
    "\x1b[33m(raylet)\x1b[0m The node with node id: 7d16 has been marked dead. This can happen when a \t(1) raylet\n"
    "\t(2) raylet has lagging heartbeats due to slow network or busy workload.\n",
    "\x1b[36m(autoscaler +1m4s)\x1b[0m Adding 2 node(s) of type gpu.\n",
    "[2026-11-21 23:22:10,371 E 16001 16020] core_worker.cc:475: :info_message: Attempting to recover\n",
    "(raylet) Without colours.\n",
    "\x1b[36m(pid=gcs_server)\x1b[0m [2026-11-21 23:37:19,839 E 22951 22951] Failed to remove 1 bundle(s)\n",
    "\x1b[36m(TrainingTrial pid=7, ip=10.0.0.7)\x1b[0m [2026-11-21 23:37:19,839 C 22 29] core_worker.cc:1: Exiting\n",
)
MIXED = "".join(ray + ours for ray, ours in zip(RAYS, OURS)) + "".join(OURS[len(RAYS) :])


@pytest.mark.parametrize("size", [1, 7, 64, 1000, len(MIXED)])
@pytest.mark.parametrize(
    ("log", "ours", "left_out"),
    [
        (MIXED, "".join(OURS), "".join(RAYS).count("\n")),
        ("".join(OURS), "".join(OURS), 0),
        ("".join(RAYS), "", "".join(RAYS).count("\n")),
    ],
)
def test_the_search_s_lines_are_shown_and_ray_s_are_counted(log: str, ours: str, left_out: int, size: int) -> None:
    lines = LogFilter()
    shown = "".join(lines.take(log[start : start + size]) for start in range(0, len(log), size)) + lines.end()
    assert (shown, lines.left_out) == (ours, left_out)
