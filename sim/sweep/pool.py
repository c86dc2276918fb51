"""Many runs at once: joblib over processes of this machine, over dask, or over ray."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from sim.errors import InputError
from sim.sweep.store import OutputError

Backend = Literal["loky", "dask", "ray"]
Task = TypeVar("Task")
Done = TypeVar("Done")

#: Tasks a worker that cannot answer one by one is given before its answers are collected.
ROUND = 8


def each(work: Callable[[Task], Done], tasks: Sequence[Task], jobs: int | None = None,
         backend: Backend = "loky") -> Iterator[Done]:
    """Yield ``work(task)`` for every task, in the order in which they end.

    Parameters
    ----------
    work
        A function at the top of a module.
    jobs
        How many at once, 1 or more; None for one a core. One job of loky runs in this process.
    backend
        ``loky``: processes on this machine. ``dask``: the scheduler that the environment names
        (``DASK_SCHEDULER_ADDRESS``) or the current client's, else workers on this machine. ``ray``: the cluster at
        ``RAY_ADDRESS``, else one on this machine.

    Raises
    ------
    InputError
        The backend is not installed or not known, or `jobs` is below 1.
    OutputError
        A worker died.
    """
    if jobs is not None and jobs < 1:
        raise InputError("must be 1 or more; leave it out for one a core", field="jobs", got=jobs)
    if backend == "loky":
        import joblib

        jobs = jobs or joblib.cpu_count()
        if min(jobs, len(tasks)) <= 1:
            yield from map(work, tasks)
            return
    with _started(backend, jobs) as (name, count):
        yield from _collect(work, tasks, name, count)


def _collect(work: Callable[[Task], Done], tasks: Sequence[Task], name: str, jobs: int) -> Iterator[Done]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    try:
        with parallel_config(backend=name, n_jobs=jobs):
            if name == "ray":  # answers only when all is done: give it rounds of a few tasks a worker
                with Parallel() as parallel:
                    for some in itertools.batched(tasks, ROUND * jobs) if hasattr(itertools, "batched") else _rounds(
                            tasks, ROUND * jobs):
                        yield from parallel(delayed(work)(task) for task in some)
            else:
                with _interrupts_held():  # workers start here
                    answers = Parallel(return_as="generator_unordered")(delayed(work)(task) for task in tasks)
                yield from answers
    except BrokenProcessPool as error:
        raise OutputError("a worker process died (out of memory?); what had finished is kept, the same command goes "
                          "on from there") from error


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back until the end: this process gets it then, processes that it starts meanwhile never do.

    They are ended by the one that started them, and would only say where they were.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _rounds(tasks: Sequence[Task], size: int) -> Iterator[Sequence[Task]]:
    return (tasks[at:at + size] for at in range(0, len(tasks), size))


@contextmanager
def _started(backend: Backend, jobs: int | None) -> Iterator[tuple[str, int]]:
    """Make a backend ready; give its name for joblib and the number of its workers."""
    if backend == "loky":
        assert jobs is not None
        yield "loky", jobs
    elif backend == "dask":
        with _dask(jobs) as workers:
            yield "dask", workers
    elif backend == "ray":
        with _ray(jobs) as workers:
            yield "ray", workers
    else:
        raise InputError("unknown backend; choose from loky, dask, ray", field="--backend", got=backend)


@contextmanager
def _dask(jobs: int | None) -> Iterator[int]:
    try:
        import dask
        import distributed
    except ImportError:
        raise InputError("dask is not installed: pip install 'kvplan[dask]'", field="--backend", got="dask") from None
    clients: Any = distributed
    try:
        current: Any = clients.get_client()
    except ValueError:
        current = None
    if current is not None:
        yield _workers(current, jobs)
        return
    address = dask.config.get("scheduler-address", None)
    try:
        if address is not None:
            with clients.Client(address, timeout="10s") as client:
                yield _workers(client, jobs)
        else:
            with clients.LocalCluster(n_workers=_count(jobs), threads_per_worker=1, dashboard_address=None,
                                      processes=True) as cluster, clients.Client(cluster) as client:
                yield _workers(client, jobs)
    except TimeoutError:
        raise OutputError(f"no dask scheduler answers at {address}") from None


def _workers(client: Any, jobs: int | None) -> int:
    return jobs or max(sum(client.nthreads().values()), 1)


def _count(jobs: int | None) -> int:
    import joblib

    return jobs or int(joblib.cpu_count())


@contextmanager
def _ray(jobs: int | None) -> Iterator[int]:
    try:
        import ray
        from ray.util import joblib as bridge
    except ImportError:
        raise InputError("ray is not installed: pip install 'kvplan[ray]'", field="--backend", got="ray") from None
    import logging
    import os

    cluster: Any = ray
    register: Any = bridge
    ours = not cluster.is_initialized()
    if ours:
        address = os.environ.get("RAY_ADDRESS")
        options: dict[str, Any] = {"address": address} if address else {
            "num_cpus": _count(jobs), "include_dashboard": False}
        cluster.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=True, **options)
    try:
        register.register_ray()
        yield jobs or max(int(cluster.cluster_resources().get("CPU", 1)), 1)
    finally:
        if ours:
            cluster.shutdown()
