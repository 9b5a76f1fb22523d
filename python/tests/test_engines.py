"""Sweeps on Ray and Dask, of which workers, a node and the driver are killed, and on other engines.

The engines' own processes are ended by their IDs: those that were started here, and nothing else.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import coreline
import pytest
from coreline import _worker

import workers
from conftest import TESTS, Begun, in_process
from test_sweep import files, is_running, same, until

pytestmark = [pytest.mark.engines, pytest.mark.usefixtures("log")]

# 400 cells of 20 to 50 ms on a processor of 2021.
FIELDS: dict[str, Any] = {
    "scenario": "lockscale",
    "machine": "host-2c",
    "variant": ["fifo", "near"],
    "seed": list(range(100)),
    "threads": [1, 2],
}
GRID = coreline.Grid(**FIELDS)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> coreline.Rows:
    return in_process(GRID, tmp_path_factory.mktemp("expected"))


def again() -> int:
    """How many runs were not the first one of their cell."""
    counts = Counter(key for _, key in workers.begun())
    return sum(counts.values()) - len(counts)


@pytest.fixture
def log(logged: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets workers log what they begin."""
    monkeypatch.setattr(_worker, "run", workers.logged)


def kill_workers(store: Path, count: int, then: Callable[[], None]) -> threading.Thread:
    """Kills so many different workers on the way, and then does something else."""
    killed: set[int] = set()

    def alive() -> list[int]:
        return [pid for pid, _ in workers.begun() if pid not in killed and is_running(pid)]

    def kill() -> None:
        for number in range(count):
            until(lambda: files(store) >= 2 * number + 1 and alive())
            pid = alive()[-1]
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        then()

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def stop_and_go_on(engine: str, expected: coreline.Rows, store: Path) -> None:
    """Kills the driver at 60 %, starts it again, and compares."""
    command = [sys.executable, str(TESTS / "driver.py"), json.dumps(FIELDS), str(store), engine, "driver"]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: (store.exists() and GRID.estimate(store).cells <= 160) or driver.poll() is not None)
    driver.kill()
    _, said = driver.communicate()
    assert driver.returncode == -signal.SIGKILL, said
    before = GRID.estimate(store).cells
    subprocess.run(command, check=True)
    print(f"\n{engine}: the driver was killed with {before} of 400 cells left; {again()} runs were repetitions")
    assert 0 < before < 400
    assert same(coreline.sweep(GRID, store, progress=False), expected)


@pytest.fixture
def ray_cluster(log: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    ray: Any = pytest.importorskip("ray")
    Cluster: Any = importlib.import_module("ray.cluster_utils").Cluster

    before = set(ray_processes())
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    monkeypatch.setenv("CORELINE_TEST_CLUSTER", cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    # Ray leaves agents of nodes behind.
    for pid in set(ray_processes()) - before:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def ray_processes() -> list[int]:
    """The processes whose title is one of Ray's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if title.startswith((b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")):
            found.append(int(folder.name))
    return found


@pytest.mark.parametrize("commit", ["driver", "workers"])
def test_ray_loses_workers_and_a_node(
    ray_cluster: Any, expected: coreline.Rows, tmp_path: Path, commit: Literal["driver", "workers"]
) -> None:
    ray: Any = pytest.importorskip("ray")
    ray.init(address=ray_cluster.address, log_to_driver=False)
    store = tmp_path / "rows"

    def remove() -> None:
        until(lambda: files(store) >= 8)
        ray_cluster.remove_node(next(iter(ray_cluster.worker_nodes)), allow_graceful=False)

    killer = kill_workers(store, 3, remove)
    rows = coreline.sweep(GRID, store, on="ray", commit=commit, progress=False)
    killer.join()
    print(f"\nray: {again()} runs of 400 cells were repetitions, after three workers and a node had ended")
    assert same(rows, expected)


def test_ray_goes_on_after_its_driver_was_killed(
    ray_cluster: Any, expected: coreline.Rows, tmp_path: Path
) -> None:
    stop_and_go_on("ray", expected, tmp_path / "rows")


@pytest.fixture
def dask_cluster(log: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as cluster:
        monkeypatch.setenv("CORELINE_TEST_CLUSTER", cluster.scheduler_address)
        yield cluster


@pytest.mark.parametrize("commit", ["driver", "workers"])
def test_dask_loses_workers(
    dask_cluster: Any, expected: coreline.Rows, tmp_path: Path, commit: Literal["driver", "workers"]
) -> None:
    distributed: Any = pytest.importorskip("distributed")
    store = tmp_path / "rows"
    killer = kill_workers(store, 3, lambda: None)
    with distributed.Client(dask_cluster) as client:
        rows = coreline.sweep(GRID, store, on=client.get_executor(), commit=commit, progress=False)
    killer.join()
    print(f"\ndask: {again()} runs of 400 cells were repetitions, after three workers had ended")
    assert same(rows, expected)


def test_dask_goes_on_after_its_driver_was_killed(
    dask_cluster: Any, expected: coreline.Rows, tmp_path: Path
) -> None:
    stop_and_go_on("dask", expected, tmp_path / "rows")


def test_loky_gives_the_same_rows(expected: coreline.Rows, tmp_path: Path) -> None:
    loky = pytest.importorskip("loky")
    with loky.ProcessPoolExecutor(2) as executor:
        assert same(coreline.sweep(GRID, tmp_path / "rows", on=executor, progress=False), expected)


@pytest.mark.parametrize("commit", ["driver", "workers"])
def test_mpi_gives_the_same_rows(expected: coreline.Rows, tmp_path: Path, commit: str) -> None:
    pytest.importorskip("mpi4py")
    # Three ranks on this host: the driver and two workers.
    launch = [str(Path(sys.executable).with_name("mpiexec")), "-n", "3", sys.executable, "-m", "mpi4py.futures"]
    store = tmp_path / "rows"
    subprocess.run([*launch, TESTS / "driver.py", json.dumps(FIELDS), store, "mpi", commit], check=True)
    assert len({pid for pid, _ in workers.begun()}) == 2
    assert GRID.estimate(store).cells == 0
    assert same(coreline.sweep(GRID, store, progress=False), expected)
