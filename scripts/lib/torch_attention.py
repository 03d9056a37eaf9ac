"""Attention of PyTorch's libraries on the GPU present, checked and timed as common/harness does with the kernels.

Needs only torch, and torch only when something is to be run: this module imports it in Torch()."""

import warnings

# Peer: the implementation, and its name in torch.nn.attention.SDPBackend.
SDPA = {"fa2": ("FlashAttention-2", "FLASH_ATTENTION"), "cudnn": ("cuDNN", "CUDNN_ATTENTION")}

ROUNDING = {"fp16": 2**-11, "bf16": 2**-8}
SMALLEST = {"fp16": 2**-24, "bf16": 2**-133}
CHECKED_ROWS = 16  # of every head


class Missing(Exception):
    """One sentence: why there is no peer here at all."""


class Refused(Exception):
    """One sentence: why a library does not compute this problem."""


def time_launches(launch, make_timer, protocol, flush=None):
    """Milliseconds of every timed launch, by the steps of Runner::run in common/harness/runner.cpp."""
    # Warm-up, which also tells how long a launch takes: slow ones get fewer of both.
    budget = protocol["max_seconds"] * 1000
    timer, spent, warmed = make_timer(), 0.0, 0
    while warmed < 1 or (warmed < protocol["warmup"] and spent < budget / 4):
        timer.start()
        launch()
        timer.stop()
        spent += timer.milliseconds()
        warmed += 1
    affordable = int(min(1e6, budget * warmed / spent))
    timers = [make_timer() for _ in range(min(protocol["iterations"], max(3, affordable)))]
    # All queued at once, without waiting in between: the GPU never idles, as in real use.
    for timer in timers:
        if flush:
            flush()
        timer.start()
        launch()
        timer.stop()
    return [timer.milliseconds() for timer in timers]


def summarise(milliseconds):
    """A record's time_ms; quantiles by linear interpolation, as in the harness."""
    times = sorted(milliseconds)

    def quantile(q):
        at = q * (len(times) - 1)
        below = int(at)
        above = min(below + 1, len(times) - 1)
        return times[below] + (at - below) * (times[above] - times[below])

    return {"median": quantile(0.5), "p10": quantile(0.1), "p90": quantile(0.9), "min": times[0],
            "launches": len(times)}


class Torch:
    """Runs peers on one problem after another. `device` is "cuda"; tests of the comparison take "cpu"."""

    def __init__(self, device="cuda"):
        try:
            import torch
            from torch.nn.attention import SDPBackend, sdpa_kernel
        except ImportError as problem:
            raise Missing(f"this Python cannot import {problem.name or 'torch'}") from None
        if device == "cuda" and not torch.cuda.is_available():
            raise Missing(f"PyTorch {torch.__version__} finds no GPU")
        self.torch, self.device, self.backends, self.sdpa_kernel = torch, device, SDPBackend, sdpa_kernel
        self.problem = None

    def library(self, peer):
        return {"name": "PyTorch", "version": str(self.torch.__version__), "implementation": SDPA[peer][0]}

    def timer(self):
        """A pair of events, both made by CUDA before the launches: torch makes one when it is first recorded."""
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        stop.record()
        return Timer(start, stop)

    def prepare(self, problem, seed):
        """Q, K and V, N(0, 1), [batch, heads, seq_len, head_dim] contiguous, and the reference of some rows."""
        if self.problem == (problem, seed):
            return
        torch, self.problem, self.inputs, self.reference = self.torch, None, None, None  # first: both need not fit
        generator = torch.Generator(self.device).manual_seed(seed)
        shape = [problem[name] for name in ("batch", "heads", "seq_len", "head_dim")]
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[problem["dtype"]]
        self.inputs = [torch.randn(shape, generator=generator, device=self.device).to(dtype) for _ in range(3)]
        self.reference = self.make_reference(problem["dtype"], *self.inputs)
        self.problem = (problem, seed)

    def make_reference(self, dtype, q, k, v):
        """Attention in float64, with the bounds of common/harness/oracle.h, for rows spread over every head."""
        torch, (n, d) = self.torch, q.shape[2:]
        u, scale = ROUNDING[dtype], d**-0.5
        rows = torch.linspace(0, n - 1, CHECKED_ROWS, device=self.device).long()
        q, k, v = q[:, :, rows].double(), k.double(), v.double()
        p = torch.softmax(q @ k.mT * scale, dim=-1)  # [batch, heads, rows, seq_len]
        value, spread = p @ v, p @ v.abs()  # [batch, heads, rows, head_dim]; spread: A in oracle.h
        products = (q.abs() @ k.abs().mT).amax(dim=-1, keepdim=True)
        score_error, sum_error = (4 + d**0.5) * 2**-24 * products * scale, n * 2**-24 / 8
        inexact = 2 * (score_error + sum_error) * spread + SMALLEST[dtype] / 2
        return {"u": u, "rows": rows, "value": value, "inexact": inexact,
                "allowed": u * value.abs() + 2 * u * spread + inexact}

    def compare(self, output):
        """The record's `error`, and one sentence if the output is wrong, else None."""
        torch, r = self.torch, self.reference
        norm = torch.linalg.vector_norm
        count = r["value"].shape[0] * r["value"].shape[1] * len(r["rows"])
        error = (output[:, :, r["rows"]].double() - r["value"]).abs()
        length = norm(r["value"], dim=(-2, -1))  # [batch, heads]
        rel = norm(error, dim=(-2, -1)) / length
        tolerance = 1.5 * r["u"] + norm(r["inexact"], dim=(-2, -1)) / length
        worst = int((rel / tolerance).argmax())  # the head that comes nearest to its tolerance
        result = {"max_abs": float(error.max()), "rel": float(rel.flatten()[worst]),
                  "tolerance": float(tolerance.flatten()[worst]),
                  "bound_ratio": float((error / r["allowed"]).max()), "checked_rows": count}
        if not bool(torch.isfinite(output).all()):
            result.update(max_abs=None, rel=None, bound_ratio=None)
            return result, "an element of the output is not a finite number"
        if not result["bound_ratio"] <= 1:
            return result, f"an element is off by {result['bound_ratio']:.3g} of its bound"
        if not bool((rel <= tolerance).all()):
            return result, f"a head is off by {result['rel']:.3g} of its norm, allowed are {result['tolerance']:.3g}"
        return result, None

    def run(self, peer, problem, protocol):
        """What the peer adds to a record: status, reason, error, time_ms."""
        torch = self.torch
        try:
            with torch.inference_mode(), self.sdpa_kernel(getattr(self.backends, SDPA[peer][1])):
                self.prepare(problem, protocol["seed"])

                def launch():
                    return torch.nn.functional.scaled_dot_product_attention(*self.inputs)

                error, reason = self.compare(self.first(launch, peer))
                times = {}
                if reason is None and self.device == "cuda":
                    # 256 MiB are more than an L2 cache holds: writing them evicts everything else.
                    l2 = torch.empty(256 << 20, dtype=torch.uint8, device="cuda") if protocol["flush_l2"] else None
                    flush = None if l2 is None else lambda: l2.fill_(255)
                    times["time_ms"] = summarise(time_launches(launch, self.timer, protocol, flush))
                    torch.cuda.synchronize()
                    error, reason = self.compare(launch())  # and again: timing must not have changed it
        except Refused as problem_:
            return {"status": "skipped", "reason": str(problem_)}
        except RuntimeError as problem_:  # torch's, CUDA's, and too little memory
            return {"status": "error", "reason": str(problem_).strip().splitlines()[0]}
        if reason is not None:
            return {"status": "wrong", "reason": reason, "error": error}
        return {"status": "passed", "error": error, **times}

    def first(self, launch, peer):
        """The first launch, which is where torch says that a back end does not take the problem."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's reasons, a screenful
            try:
                return launch()
            except RuntimeError as problem:
                if not any(words in str(problem) for words in ("No available kernel", "No viable backend")):
                    raise
                implementation, backend = SDPA[peer]
                raise Refused(f"PyTorch {self.torch.__version__} does not run {implementation} ({backend}) here") \
                    from None


class Timer:
    """A launch between two events."""

    def __init__(self, start, stop):
        self.begin, self.end = start, stop

    def start(self):
        self.begin.record()

    def stop(self):
        self.end.record()

    def milliseconds(self):
        self.end.synchronize()
        return self.begin.elapsed_time(self.end)
