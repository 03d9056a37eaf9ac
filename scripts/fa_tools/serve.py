"""A program of this repository that waits for requests (`attention --serve`): one JSON object a line each way."""

import json
import math
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path

ANSWER_SECONDS = 300  # longer than any request takes on a working GPU
ENDING_SECONDS = 0.5  # what a program that gives up after an error needs to be gone

TIMES = ("median", "p10", "p90", "min", "launches")


class Failed(Exception):
    """One sentence: why a request could not be done. The next one may be."""


class Broken(Exception):
    """One sentence: why the program is not to be worked with at all."""


def _number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _no_constant(name):
    raise ValueError(f"{name} is not JSON")


def _lacks(op, answer):
    """What an answer to `op` would need to have, or None."""
    if op == "describe":
        machine, names = answer.get("machine"), answer.get("kernels")
        if not isinstance(machine, dict) or "backend" not in machine:
            return "machine.backend"
        return None if isinstance(names, list) and all(isinstance(name, str) for name in names) else "kernels"
    if op == "tensors":
        files = answer.get("files")
        known = isinstance(files, list) and len(files) == 3 and all(isinstance(each, str) for each in files)
        return None if known else "files"
    if op == "verify":
        record = answer.get("record")
        known = isinstance(record, dict) and record.get("status") in ("passed", "wrong", "skipped", "error")
        if not known:
            return "record.status"
        return None if record["status"] == "passed" or isinstance(record.get("reason"), str) else "record.reason"
    if op == "time":
        times = answer.get("time_ms")
        for name in TIMES:
            if not isinstance(times, dict) or not _number(times.get(name)) or times[name] <= 0:
                return f"time_ms.{name}"
        for name in ("clock_mhz", "power_w"):
            if answer.get(name) is not None and not _number(answer[name]):
                return name
    return None


class Server:
    """Starts the program at the first request, and again after it ended, with the tensors of the problem then."""

    def __init__(self, path):
        self.path, self.name = str(path), Path(path).name
        self.process, self.said, self.unread = None, None, b""
        self.tensors = None  # the last request for a problem

    # --- Requests ---

    def describe(self):
        return self.ask("describe")

    def problem(self, problem, protocol):
        """Makes the tensors of a problem; those before are freed."""
        self.tensors = {**problem, **{name: protocol[name] for name in
                                      ("inputs", "seed", "flush_l2", "rotating_inputs")}}
        if not self.restart():
            self.ask("problem", **self.tensors)

    def write_tensors(self, problem, protocol, folder):
        """Files with the elements of Q, K and V of a problem: what its kernels get, for other libraries."""
        return self.ask("tensors", **problem, inputs=protocol["inputs"], seed=protocol["seed"],
                        folder=str(folder))["files"]

    def verify(self, kernel):
        """The record's fields without its times."""
        self.restart()
        record = self.ask("verify", kernel=kernel)["record"]
        if record["status"] == "error":
            self.may_end()
        return record

    def time(self, kernel, protocol):
        """time_ms, clock_mhz, power_w of one kernel's launches."""
        self.restart()
        answer = self.ask("time", kernel=kernel, **{name: protocol[name] for name in
                                                    ("warmup", "iterations", "max_seconds", "idle_ms")})
        answer["time_ms"] = {name: answer["time_ms"][name] for name in TIMES}
        return answer

    def close(self, patience=5):
        """Ends the program, after so many seconds by force."""
        if self.process is None:
            return
        try:
            self.process.stdin.close()  # the end of its input is the end of its work
            self.process.wait(timeout=patience)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()

    # --- Below the requests ---

    def restart(self):
        """Starts the program if it does not run (any more) and gives it its problem; whether it did."""
        if self.process is not None and self.process.poll() is None:
            return False
        self.start()
        if self.tensors:
            self.ask("problem", **self.tensors)
        return True

    def start(self):
        self.kill()
        self.said, self.unread = tempfile.TemporaryFile(), b""
        try:
            # Away from the terminal: Ctrl-C is for the script, which then ends its programs.
            self.process = subprocess.Popen([self.path, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=self.said, start_new_session=True)
        except OSError as problem:
            raise Broken(f"{self.name} cannot be run ({(problem.strerror or str(problem)).lower()})") from None

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.said):
                try:
                    pipe.close()
                except OSError:
                    pass
        self.process = None

    def ask(self, op, **fields):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write((json.dumps({"op": op, **fields}) + "\n").encode())
            self.process.stdin.flush()
        except OSError:
            pass  # it is gone; what it said before is read below
        line = self.line(op)
        try:
            answer = json.loads(line, parse_constant=_no_constant)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = line.decode(errors="replace").strip()[:60]
            raise Broken(f"{self.name} answered '{op}' with {text!r}, not with one JSON object a line")
        if "error" in answer:
            self.may_end()
            raise Failed(str(answer["error"]))
        missing = _lacks(op, answer)
        if missing:
            raise Broken(f"{self.name} answered '{op}' without a usable {missing}")
        return answer

    def may_end(self):
        """Waits a moment after an error: a program that lost its GPU ends, and is not to be asked again."""
        try:
            self.process.wait(timeout=ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            pass

    def line(self, op):
        """The next line of its output, as bytes."""
        until = time.monotonic() + ANSWER_SECONDS
        stdout = self.process.stdout.fileno()
        while b"\n" not in self.unread:
            ready, _, _ = select.select([stdout], [], [], max(0, until - time.monotonic()))
            if not ready:
                self.kill()
                raise Failed(f"{self.name} did not answer '{op}' within {ANSWER_SECONDS} s")
            more = os.read(stdout, 1 << 16)
            if not more:
                raise Failed(self.how_it_ended(op))
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def how_it_ended(self, op):
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        self.kill()
        if lines:
            return f"{self.name} ended in '{op}': {lines[-1].removeprefix('error: ')}"
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        return f"{self.name} ended {how} in '{op}'"
