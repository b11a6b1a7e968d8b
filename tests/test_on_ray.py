"""The matrix on a real Ray cluster of two node processes, one of which is killed in the middle."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from langgoalirl.experiments import local, on_ray
from langgoalirl.experiments.plan import Job

ray = pytest.importorskip("ray")

# A program that takes a while, writes down how far it is, and goes on from there.
SCRIPT = """
import sys, time
from pathlib import Path
kind, name = sys.argv[1:]
if kind == "fail":
    sys.exit("langgoalirl: no such luck.")
place = Path(name + ".place")
done = int(place.read_text()) if place.exists() else 0
with open(name + ".starts", "a") as out:
    out.write(f"{done}\\n")
for i in range(done, 20):
    time.sleep(0.1)
    place.write_text(str(i + 1))
Path(name + ".result").write_text("the same bytes")
"""


def job(name: str, kind: str = "train") -> Job:
    return Job(name, ((kind, name),), (Path(f"{name}.result"),))


@pytest.mark.filterwarnings("ignore")
def test_all_runs_finish_when_a_node_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    source = str(Path(on_ray.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]))
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    monkeypatch.setattr(local, "PROGRAM", [sys.executable, str(script)])
    monkeypatch.setattr(local, "LOOK_EVERY", 0.1)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
        jobs = [job(f"run{i}") for i in range(4)]

        def kill() -> None:
            while len(list(tmp_path.glob("*.place"))) < 2:
                time.sleep(0.05)
            time.sleep(0.5)
            cluster.remove_node(nodes[0], allow_graceful=False)

        killer = threading.Thread(target=kill)
        killer.start()
        state = on_ray.run([*jobs, job("bad", "fail")], cluster.address, tmp_path / "logs")
        killer.join()
    finally:
        cluster.shutdown()
    assert sorted(done.name for done in state.done) == [f"run{i}" for i in range(4)]
    assert list(state.failed) == ["bad"]
    assert "no such luck" in state.failed["bad"]
    for i in range(4):
        assert Path(f"run{i}.result").read_text() == "the same bytes"
    starts = [len(Path(f"run{i}.starts").read_text().split()) for i in range(4)]
    assert max(starts) > 1  # the one whose node died was started again
