"""The shared library fa_bench (bench/library.h): kernels and libraries measured in this process, by one timer."""

import ctypes
import json
import re
from pathlib import Path

LAUNCH, OUTPUT, PREPARE = range(3)  # FaBenchTask
DONE, NOT_TAKEN, FAILED = range(3)  # what a peer returns

Say = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)
Peer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 6, ctypes.c_int)


class Output(ctypes.Structure):
    """FaBenchOutput: where the output of the latest launch is. Strides in elements."""

    _fields_ = [("data", ctypes.c_void_p), *((stride, ctypes.c_longlong) for stride in ("block_stride", "head_stride", "row_stride"))]


class Failed(Exception):
    """One sentence: why a request could not be done."""


class NotTaken(Exception):
    """One sentence: why a library does not compute this problem."""


class Harness:
    """A library of kernels that is loaded once; `name` is for messages."""

    def __init__(self, path):
        self.name, self.kept = Path(path).name, []
        try:
            library = ctypes.CDLL(str(path))
            self.add_peer, self.answer = library.fa_bench_add, library.fa_bench_request
        except (OSError, AttributeError):
            raise Failed(f"{path} is not the library fa_bench of this repository, built for this machine") from None
        self.add_peer.restype = self.answer.restype = ctypes.c_char_p

    def describe(self):
        """{"machine": as in results files, "kernels": names}"""
        return self.ask({"op": "describe"})

    def measure(self, kernels, problem, protocol, say=lambda what, done, steps: None):
        """The records of these kernels and peers on a problem. say() is told what is happening; what it raises ends the
        request and is raised here."""
        raised = []

        def told(what, done, steps):
            try:
                say(what.decode(), done, steps)
                return 0
            except BaseException as problem:  # nothing can be raised through C
                raised.append(problem)
                return 1

        settings = {name: value for name, value in protocol.items() if name not in ("name", "tflops_convention")}
        try:
            return self.ask({"op": "measure", "kernels": kernels, **problem, **settings}, told)["records"]
        except Failed:
            if raised:
                raise raised[0] from None
            raise

    def add(self, name, library, peer, fp8=False):
        """Measures a library from Python, too: peer(task, q, k, v, o, stream) gets addresses on the GPU. It raises NotTaken
        if it does not compute the problem; whatever else it raises is an error of the library's. With `fp8` it takes problems
        in FP8, and no others."""

        def called(task, q, k, v, o, stream, sentence, capacity):
            try:
                peer(task, q, k, v, o, stream)
                return DONE
            except BaseException as problem:  # a library may fail in any way
                text = first_line(problem).encode()[: capacity - 1] + b"\0"
                ctypes.memmove(sentence, text, len(text))
                return NOT_TAKEN if isinstance(problem, NotTaken) else FAILED

        self.kept.append(Peer(called))
        problem = self.add_peer(json.dumps({"kernel": name, "library": library, "fp8": fp8}).encode(), self.kept[-1])
        if problem:
            raise Failed(problem.decode())

    def ask(self, request, say=None):
        answer = json.loads(self.answer(json.dumps(request).encode(), Say(say) if say else Say()))
        if "error" in answer:
            raise Failed(answer["error"])
        return answer


def first_line(problem):
    """One sentence of an exception, without the addresses and folders of this machine."""
    text = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    return re.sub(r"(?<![\w.])/[\w./+-]*/", "", text)[:200]
