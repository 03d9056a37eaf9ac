"""Shared by the tests that drive other tools: the arguments, running a command, skipping with a reason."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = str(os.cpu_count() or 2)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)  # CTest's SKIP_RETURN_CODE


def need(tool):
    return shutil.which(tool) or skip(f"{tool} is not installed")


def fail(message):
    print(message)
    sys.exit(1)


def run(*command, check=True, **options):
    """The command's output, stdout and stderr together."""
    done = subprocess.run([str(part) for part in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, errors="replace", **options)
    if check and done.returncode != 0:
        fail(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def build(folder, target, preset, *arguments):
    """Configures another build tree and builds one target of it; quick when nothing has changed."""
    run("cmake", "-S", ROOT, "--preset", preset, "-B", folder, *arguments)
    run("cmake", "--build", folder, "-j", JOBS, "--target", target)
    return Path(folder) / "bin"
