"""Shared by the tests that drive other tools: the arguments, running a command, skipping with a reason."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))  # where the package fa_tools is
JOBS = str(os.cpu_count() or 2)
COMPILING = 540  # seconds: compilers, and programs that compute for long, may take more than a tool that only answers


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)  # CTest's SKIP_RETURN_CODE


def need(tool):
    return shutil.which(tool) or skip(f"{tool} is not installed")


def fail(message):
    print(message)
    sys.exit(1)


def run(*command, check=True, timeout=60, **options):
    """The command's output, stdout and stderr together. One that has not ended after `timeout` seconds is killed with all
    that it has started, and the test fails; with check=False its output so far is returned."""
    command = [part for each in command for part in (each if isinstance(each, tuple) else (each,))]
    with subprocess.Popen([str(part) for part in command], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, errors="replace", start_new_session=True, **options) as process:
        try:
            output, ended = process.communicate(timeout=timeout)[0], None
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, ended = process.communicate()[0], f"did not end within {timeout} s"
    if check and (ended or process.returncode != 0):
        fail(f"{' '.join(map(str, command))} {ended or f'ended with {process.returncode}'}:\n{output}")
    return output


def build(folder, target, preset, *arguments):
    """Configures another build tree and builds one target of it; quick when nothing has changed."""
    run("cmake", "-S", ROOT, "--preset", preset, "-B", folder, *arguments, timeout=COMPILING)
    run("cmake", "--build", folder, "-j", JOBS, "--target", target, timeout=COMPILING)
    return Path(folder) / "bin"
