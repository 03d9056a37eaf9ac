"""Shared by the tests that drive other tools: the arguments, running a command, skipping with a reason."""

import os
import re
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


def find_nvcc():
    """(path, version) of nvcc; without one the test is skipped."""
    from fa_tools.for_readers import sass

    try:
        return sass.find_nvcc()
    except sass.Missing as problem:
        skip(str(problem))


def check_asynchronous(log, name):
    """Of what ptxas said. C75..: "wgmma.mma_async instructions are serialized", and what leads to it."""
    if serialised := re.search(r"\(C75\d\d\)[^\n]*", log):
        fail(f"{name}: {serialised[0]}")


def statements(source):
    """Of each line of a source, the text of the statement in which it lies, without comments and line breaks, as
    common/harness/sources.cpp has it."""
    lines = [line.split("//")[0].strip() for line in (ROOT / source).read_text(encoding="utf-8").splitlines()]
    result = []
    while len(result) < len(lines):
        text, first = "", len(result)
        for end, code in enumerate(lines[first:], first + 1):
            text += " " * bool(text and code and text[-1] != "(") + code
            if not code or code.startswith("#") or code[-1] in ";{}:":
                break
        result += [text] * (end - first)
    return result


def fail(message):
    print(message)
    sys.exit(1)


def expect(condition, message):
    if not condition:
        fail(message)


def refused(command, sentence, code=2):
    """The command ends with this code, and with one line that says so."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    expect(done.returncode == code, f"{command} ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    lines = done.stderr.splitlines()
    expect(len(lines) == 1 and lines[0].startswith("error: ") and sentence in lines[0],
           f"{command} should say '{sentence}' in one line, not:\n{done.stderr}")


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


def copy_repository(folder):
    """All that git would list of the checkout, into another folder."""
    from fa_tools.tools import repository_files

    for path in repository_files():
        copy = Path(folder) / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def build(folder, target, preset, *arguments):
    """Configures another build tree and builds one target of it; quick when nothing has changed."""
    run("cmake", "-S", ROOT, "--preset", preset, "-B", folder, *arguments, timeout=COMPILING)
    run("cmake", "--build", folder, "-j", JOBS, "--target", target, timeout=COMPILING)
    return Path(folder) / "bin"
