"""CPU time and peak memory of whole commands, as ratios to a calibration loop: `python -m tests.benchmarks.commands`.

A machine's speed drifts and differs; the ratio to a fixed piece of work carries over. Nothing here is asserted.
The bars are in CPU seconds on an idle core of the machine they were set on.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "examples" / "agents_on_h100" / "study.yaml"
SWEEP = (
    "--set",
    "sweep={tiers.dram.capacity: {geomspace: [256 GiB, 4 TiB, 10]}, "
    "deployment.prefill.mfu: {linspace: [0.3, 0.6, 10]}}",
)
# name -> (arguments, bar in CPU seconds)
COMMANDS = {
    "version": (["--version"], 0.35),
    "help": (["--help"], 0.5),
    "validate": (["validate", str(STUDY), "--quiet"], 0.8),
    "plan, one point": (["plan", str(STUDY), "--draws", "0"], 1.5),
    "plan, 1,000 draws": (["plan", str(STUDY)], None),
    "plan, 10,000 draws": (["plan", str(STUDY), "--draws", "10000"], 10.0),
    "plan, 10 x 10 sweep": (["plan", str(STUDY), "--draws", "0", *SWEEP], None),
    "plan with report": (["plan", str(STUDY), "--report", "{tmp}/report.html"], 3.0),
}


def calibration(repeats: int = 5) -> float:
    """CPU seconds of a fixed mixture of interpreter and array work, median of several runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        total = 0
        for i in range(1_000_000):
            total += i % 7
        values = np.linspace(0, 1, 200_000)
        for _ in range(20):
            values = np.sqrt(values * values + 1e-9)
        times.append(time.process_time() - start)
    return statistics.median(times)


def run(arguments: list[str]) -> tuple[float, float]:
    """CPU seconds and peak MiB of one command."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("{tmp}", folder) for word in arguments]
        process = subprocess.Popen([sys.executable, "-m", "kvmodel", *words], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"kvmodel {' '.join(words)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Print one line per command."""
    unit = calibration()
    print(f"calibration loop: {unit:.3f} CPU s; page size {resource.getpagesize()} B; {sys.version.split()[0]}")
    print(f"{'command':<24}{'CPU s':>8}{'bar':>7}{'x calibration':>15}{'peak MiB':>10}")
    for name, (arguments, bar) in COMMANDS.items():
        run(arguments)  # warm byte code and caches
        runs = [run(arguments) for _ in range(3)]
        cpu, peak = (statistics.median(column) for column in zip(*runs, strict=True))
        print(
            f"{name:<24}{cpu:>8.2f}{'' if bar is None else f'{bar:g}':>7}{cpu / unit:>15.1f}{peak:>10.0f}", flush=True
        )


if __name__ == "__main__":
    main()
