"""Measures gradients: those of the library fa_bench and those of other libraries, in PyTorch, on the same tensors, by one timer.

What must come out is known of every element, in float64. In each timed launch half of all columns of a head get another sign, which
no launch can foresee: in Q and K the same ones, so that scores stay and the signs come out in dQ and dK, and in V, O and dO the
same ones, so that they come out in dV. So every timed launch is checked whole, in tiles of 64 rows. O and log-sum-exp are the same
for all, and there before the clock starts. Launches are queued while the GPU sleeps, so that it never waits for Python."""

import importlib
import math
import statistics
import time

from fa_tools.for_readers import torch_attention
from fa_tools.for_readers.harness import Failed, NotTaken, first_line
from fa_tools.for_readers.torch_attention import Missing, operators_of_flash_attention_3
from fa_tools.records import attended_pairs, flops_of, short_name

NAMES = ("dQ", "dK", "dV")
SCORES_AT_ONCE = 1 << 26  # of the reference: each takes some 50 bytes
UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}  # the most that rounding changes a number, as a share of it
LEAST = {"fp16": 2.0**-24, "bf16": 2.0**-133}  # the smallest number above 0
TILE = 64  # rows of a gradient that are judged together
SLEEP_CYCLES = 40_000_000  # 20 ms, in which launches are queued
SAMPLE_SECONDS = 0.002


def in_tiles(rows):
    """Sums over tiles of the last dimension, of TILE rows or more: what is left over goes to the last one."""
    whole = max(1, rows.shape[-1] // TILE)
    first = rows[..., :(whole - 1) * TILE]
    return importlib.import_module("torch").cat([first.unflatten(-1, (whole - 1, TILE)).sum(-1), rows[..., (whole - 1) * TILE:].sum(-1, keepdim=True)], -1)


# --- What must come out ----------------------------------------------------------------------------------------


class Reference:
    """In float64: O and log-sum-exp as a forward pass leaves them, the gradients, and of each tile of a gradient the square of the error
    that rounding makes of it (`expected`). With u half of the most that rounding changes a number, those that count are of P and
    of dS to 16 bits, u of each, of O, by which D is off, and of the gradients themselves; in fp16 also what is lost below the
    smallest normal number, and where scores are large, what fp32 leaves of them."""

    def __init__(self, torch, problem, q, k, v, d_o):
        u, least = UNIT[problem["dtype"]] / 2, LEAST[problem["dtype"]] / 4
        scale, causal = q.shape[-1] ** -0.5, "mask" in problem
        group, (n, m) = q.shape[1] // k.shape[1], (q.shape[-2], k.shape[-2])
        self.o, self.lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        self.gradients = [torch.zeros_like(each, dtype=torch.float32) for each in (q, k, v)]
        expected = [torch.zeros(each.shape[:3], dtype=torch.float64, device=q.device) for each in (q, k, v)]  # of each row
        at_once = max(1, SCORES_AT_ONCE // max(1, m))
        for b in range(k.shape[0]):
            for of_keys in range(k.shape[1]):
                keys, values = k[b, of_keys].double(), v[b, of_keys].double()
                d_k, d_v = torch.zeros_like(keys), torch.zeros_like(values)
                for head in range(of_keys * group, (of_keys + 1) * group):
                    for first in range(0, n, at_once):
                        rows = slice(first, min(n, first + at_once))
                        queries, gradient = q[b, head, rows].double(), d_o[b, head, rows].double()
                        scores = queries @ keys.T * scale
                        if causal:
                            last = torch.arange(rows.start, rows.stop, device=q.device)[:, None] + (m - n)
                            scores.masked_fill_(torch.arange(m, device=q.device) > last, -math.inf)
                        lse = scores.logsumexp(-1, keepdim=True)
                        # What fp32 leaves of a score, relative to P.
                        lost = 2.0**-22 * scores.abs().nan_to_num(posinf=0).amax(-1, keepdim=True)
                        p = (scores - lse).exp_().nan_to_num_(0)  # of a row that sees no key: 0
                        del scores
                        o = p @ values
                        d_p = gradient @ values.T
                        delta = (p * d_p).sum(-1, keepdim=True)
                        d_s = p * (d_p - delta)
                        d_q = scale * d_s @ keys
                        d_k += scale * d_s.T @ queries
                        d_v += p.T @ gradient
                        off = u * (gradient * o).square().sum(-1, keepdim=True).sqrt()  # of delta, as O is rounded
                        squares = (u * d_s).square_() + (lost * p * (d_p.abs_() + delta.abs())).square_() + least**2
                        expected[0][b, head, rows] = scale**2 * ((squares @ keys.square()).sum(-1) + (off * (p @ keys)).square().sum(-1))
                        squares += (off * p).square_()
                        expected[1][b, of_keys] += scale**2 * (squares.T @ queries.square()).sum(-1)
                        del d_s, d_p, squares
                        squares = p.square() * (u**2 + lost**2) + least**2
                        expected[2][b, of_keys] += (squares.T @ gradient.square()).sum(-1)
                        self.o[b, head, rows], self.lse[b, head, rows] = o.to(q.dtype), lse[:, 0].float()
                        self.gradients[0][b, head, rows] = d_q.float()
                self.gradients[1][b, of_keys], self.gradients[2][b, of_keys] = d_k.float(), d_v.float()
        of_rows = [each.double().square().sum(-1) for each in self.gradients]
        self.squares = [in_tiles(each) for each in of_rows]
        self.tolerance = []
        for each, squares in zip(expected, of_rows):
            each += u**2 * squares + least**2 * q.shape[-1]
            rows = in_tiles(each).square() / in_tiles(each.square()).clamp_min(1e-300)  # as many equal ones would have such a sum
            few = 1 + (rows < TILE / 4)  # of a few rows an error is less like its mean
            self.tolerance.append(few * 1.5 * (in_tiles(each) / in_tiles(squares).clamp_min(1e-300)).sqrt())

    def squares_of_error(self, torch, found, signs=(1, 1, 1)):
        """Of each tile of each gradient the sum of the squares of what it is off by."""
        return [in_tiles((each.float() * sign - right).square().sum(-1, dtype=torch.float64))
                for each, right, sign in zip(found, self.gradients, signs)]

    def worst(self, errors):
        """(error over tolerance, error, tolerance) of the tile that comes nearest to it, or None if one is not finite; the errors
        relative to the norm."""
        found = []
        for error, squares, tolerance in zip(errors, self.squares, self.tolerance):
            relative = (error / squares.clamp_min(1e-300)).sqrt()
            if not bool(relative.isfinite().all()):
                return None
            over = (relative / tolerance).flatten()
            at = int(over.argmax())
            found.append((float(over[at]), float(relative.flatten()[at]), float(tolerance.flatten()[at])))
        return max(found)


# --- What computes them ----------------------------------------------------------------------------------------


class Own:
    """A kernel of the library fa_bench."""

    library = None

    def __init__(self, harness, name):
        self.harness, self.name, self.facts = harness, short_name(name), {}

    def take(self, torch, problem, of):
        """The tensors `of`: q, k, v, o, lse, d_o. NotTaken if it does not compute this problem."""
        self.gradients = [torch.empty_like(of[name]) for name in "qkv"]
        self.request = {"op": "gradients", "kernel": self.name, **problem}
        size = self.ask({})["workspace_bytes"]
        self.workspace = torch.empty(size, dtype=torch.uint8, device=of["q"].device)
        self.pointers = {name: each.data_ptr() for name, each in
                         (*of.items(), *zip(("d_q", "d_k", "d_v"), self.gradients), ("workspace", self.workspace))}
        self.facts = {"workspace_bytes": size}

    def ask(self, more):
        answer = self.harness.ask({**self.request, **more})
        if "refused" in answer:
            raise NotTaken(answer["refused"])
        return answer

    def prepare(self):
        pass

    def launch(self, stream):
        said = self.ask({"workspace_bytes": self.facts["workspace_bytes"], "pointers": {**self.pointers, "stream": stream}})
        self.facts.update(said if said["source"] else {name: value for name, value in said.items() if name != "source"})

    def poison(self):
        for each in self.gradients:
            each.fill_(math.nan)

    def output(self):
        return self.gradients


class Library:
    """A peer. It gets tensors that lie as [batch, seq_len, heads, head_dim], as its users have them: prepare() makes them of the inputs
    of this launch, before the clock starts."""

    facts = {}

    def take(self, torch, problem, of):
        if "kv_len" in problem or "kv_heads" in problem and not self.groups:
            raise NotTaken("measured with as many queries as keys" + ("" if self.groups else ", and heads that share none"))
        self.torch, self.of, self.causal, self.scale = torch, of, "mask" in problem, problem["head_dim"] ** -0.5
        self.deterministic, self.found = problem["gradients"] == "deterministic", None
        self.rows = {name: torch.empty_like(each.transpose(1, 2), memory_format=torch.contiguous_format)
                     for name, each in of.items() if name != "lse"}

    def prepare(self):
        for name, rows in self.rows.items():
            rows.copy_(self.of[name].transpose(1, 2))

    def poison(self):
        """Its outputs are new memory in each launch."""
        self.found = None

    def output(self):
        return self.found


class InPyTorch(Library):
    """FlashAttention-2's or cuDNN's backward by PyTorch's own operators, `which` as they are called there. What their forward pass
    leaves beside O is made once: other signs do not change it."""

    groups = False

    def __init__(self, torch, implementation, which):
        self.library = {"name": "PyTorch", "version": str(torch.__version__), "implementation": implementation}
        self.forward = getattr(torch.ops.aten, f"_scaled_dot_product_{which}_attention", None)
        self.backward = getattr(torch.ops.aten, f"_scaled_dot_product_{which}_attention_backward", None)
        self.is_cudnn = which == "cudnn"
        if self.forward is None or self.backward is None:
            raise Missing(f"PyTorch {torch.__version__} has no backward of {implementation}")

    def take(self, torch, problem, of):
        super().take(torch, problem, of)
        if self.is_cudnn and self.deterministic:
            raise NotTaken("PyTorch does not tell cuDNN to be deterministic")
        self.prepare()
        self.heads = {name: rows.transpose(1, 2) for name, rows in self.rows.items()}
        q, k, v, o = (self.heads[name] for name in "qkvo")
        if self.is_cudnn:
            _, lse, *rest = self.forward(q, k, v, None, True, 0.0, self.causal, False, scale=self.scale)
            q_begins, k_begins, q_longest, k_longest, seed, offset = rest[:6]
            self.made = (o, lse, seed, offset, None, q_begins, k_begins, q_longest, k_longest, 0.0, self.causal)
        else:
            _, lse, q_begins, k_begins, q_longest, k_longest, seed, offset, *_ = self.forward(q, k, v, 0.0, self.causal, False, scale=self.scale)
            self.made = (o, lse, q_begins, k_begins, q_longest, k_longest, 0.0, self.causal, seed, offset)

    def launch(self, _):
        torch, modes = self.torch, importlib.import_module("torch.utils.deterministic")
        before = torch.are_deterministic_algorithms_enabled(), modes.fill_uninitialized_memory
        torch.use_deterministic_algorithms(self.deterministic)
        modes.fill_uninitialized_memory = False  # which would take time
        try:
            self.found = self.backward(self.heads["d_o"], *(self.heads[name] for name in "qkv"), *self.made, scale=self.scale)
        finally:
            torch.use_deterministic_algorithms(before[0])
            modes.fill_uninitialized_memory = before[1]


class FlashAttention3(Library):
    """By the operator of its package: one built from FlashAttention's sources has it, and xformers until 0.0.34, but not fa3-fwd."""

    groups = True

    def __init__(self, torch, implementation):
        package, version = operators_of_flash_attention_3()
        if not hasattr(torch.ops.flash_attn_3, "bwd"):
            raise Missing(f"{package} {version} has no backward")
        self.library = {"name": package, "version": version, "implementation": implementation}

    def take(self, torch, problem, of):
        super().take(torch, problem, of)
        self.gradients = [torch.empty_like(self.rows[name]) for name in "qkv"]

    def poison(self):
        for each in self.gradients:
            each.fill_(math.nan)

    def launch(self, _):
        rows = self.rows
        self.torch.ops.flash_attn_3.bwd(rows["d_o"], rows["q"], rows["k"], rows["v"], rows["o"], self.of["lse"], *self.gradients,
                                        softmax_scale=self.scale, is_causal=self.causal, deterministic=self.deterministic)

    def output(self):
        return [each.transpose(1, 2) for each in self.gradients]


PEERS = {
    "fa2": lambda implementation, torch: InPyTorch(torch, implementation, "flash"),
    "cudnn": lambda implementation, torch: InPyTorch(torch, implementation, "cudnn"),
    "fa3": lambda implementation, torch: FlashAttention3(torch, implementation),
}


# --- Measuring -------------------------------------------------------------------------------------------------


def place_in_round(i, nth, rounds, count):
    """Which of `count` is the i-th in a round, as in common/harness/runner.cpp: there and back in two rounds, and the next two begin
    elsewhere."""
    pair, pairs = nth // 2, (rounds + 1) // 2
    first = count * pair // pairs if pairs <= count else pair % count
    return (first + (count - 1 - i if nth % 2 else i)) % count


class WrongLaunch(Exception):
    """One sentence: what is wrong with what a timed launch gave."""


class Gradients:
    """Measures as Harness does, problems of gradients alone. `here` is where tensors are: "cuda", or "cpu" with the emulator, which has
    no times."""

    def __init__(self, harness, torch, here="cuda"):
        self.harness, self.name, self.torch, self.here, self.peers = harness, harness.name, torch, here, {}

    def describe(self):
        described = self.harness.describe()
        return {**described, "kernels": [f"backward/{name}" for name in described["gradients"]]}

    def add(self, names):
        """Adds these peers. Returns those that are there, and a sentence for each of the others."""
        missing = {}
        for name in names:
            implementation, make = torch_attention.PEERS[name]
            try:
                self.peers[f"peer/{name}"] = make(implementation, self.torch)
            except Missing as problem:
                missing[f"peer/{name}"] = str(problem)
        return dict.fromkeys(self.peers), missing

    def make(self, problem, protocol):
        """Q, K, V and dO, as they were made."""
        torch, group = self.torch, problem["heads"] // problem.get("kv_heads", problem["heads"])
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[problem["dtype"]]
        random = torch.Generator(self.here).manual_seed(protocol["seed"])
        sizes = {name: (problem["batch"], problem["heads"] // (1 if name in ("q", "d_o") else group),
                        problem["seq_len"] if name in ("q", "d_o") else problem.get("kv_len", problem["seq_len"]), problem["head_dim"])
                 for name in ("q", "k", "v", "d_o")}
        spread = problem.get("score_std", 1) ** 0.5
        return {name: (torch.randn(size, device=self.here, generator=random) * (spread if name in "qk" else 1)).to(dtype)
                for name, size in sizes.items()}

    def measure(self, names, problem, protocol, say):
        """The records of these kernels and peers on a problem."""
        torch, timed = self.torch, self.here == "cuda"
        rounds = protocol["rounds"] if timed else 0
        steps, done = len(names) * (1 + rounds), 0
        say("computing the reference", 0, steps)
        with torch.no_grad():
            try:
                self.originals = self.make(problem, protocol)
                self.reference = Reference(torch, problem, *self.originals.values())
            except RuntimeError as why:  # such as too little memory
                raise Failed(first_line(why)) from None
            self.originals["o"] = self.reference.o
            self.of = {name: each.clone() for name, each in self.originals.items()} | {"lse": self.reference.lse}
            self.problem = problem
            runners = [self.peers.get(name) or Own(self.harness, name) for name in names]
            records = []
            for name, runner in zip(names, runners):
                say(f"verifying {name}", done, steps)
                done += 1
                records.append(self.verify(name, runner))
            for nth in range(rounds):
                for i in range(len(names)):
                    at = place_in_round(i, nth, rounds, len(names))
                    say(f"timing {names[at]}, round {nth + 1} of {rounds}", done, steps)
                    done += 1
                    if records[at]["status"] == "passed":
                        self.judge(records[at], lambda at=at: self.add_round(runners[at], records[at], protocol))
        return [self.finished(record, runner) for record, runner in zip(records, runners)]

    def judge(self, record, body):
        """Runs body; what it raises is the record's status."""
        try:
            body()
            return
        except NotTaken as problem:
            record.update(status="skipped", reason=str(problem))
        except WrongLaunch as problem:
            record.update(status="wrong", reason=str(problem))
            return
        except Exception as problem:  # a library may fail in any way
            record.update(status="error", reason=first_line(problem))
        record.pop("error", None)

    def verify(self, name, runner):
        torch = self.torch
        record = {"kernel": name, **self.problem, "attended_pairs": attended_pairs(self.problem), "status": "passed", "rounds": []}

        def body():
            runner.take(torch, self.problem, self.of)
            self.change(None)
            runner.prepare()
            runner.poison()
            runner.launch(self.stream())
            self.wait()
            found = runner.output()
            errors = self.reference.squares_of_error(torch, found)
            worst = self.reference.worst(errors)
            off = [float(each.sum().sqrt() / squares.sum().sqrt().clamp_min(1e-300)) for each, squares in zip(errors, self.reference.squares)]
            largest = max(float((each.float() - right).abs().max()) for each, right in zip(found, self.reference.gradients) if right.numel())
            over, rel, tolerance = worst or (None, None, float(max(each.max() for each in self.reference.tolerance)))
            record["error"] = {"max_abs": largest if worst else None, "rel": rel, "tolerance": tolerance, "bound_ratio": over,
                               "checked_rows": sum(each[..., 0].numel() for each in found),
                               "of_gradients": {name: value if math.isfinite(value) else None for name, value in zip(NAMES, off)}}
            if worst is None or over > 1:
                raise WrongLaunch(self.reason(worst))

        self.judge(record, body)
        return record

    def stream(self):
        return self.torch.cuda.current_stream().cuda_stream if self.here == "cuda" else 0

    def wait(self):
        if self.here == "cuda":
            self.torch.cuda.synchronize()

    def change(self, signs):
        """The inputs of the next launch: with these signs of the columns of each head of keys, or as they were made."""
        for name, each in self.originals.items():
            if signs is None:
                self.of[name].copy_(each)
            else:
                self.torch.mul(each, self.for_heads(signs[0 if name in "qk" else 1], each), out=self.of[name])

    def for_heads(self, signs, tensor):
        return signs.repeat_interleave(tensor.shape[1] // signs.shape[1], 1)

    def add_round(self, runner, record, protocol):
        """Times launches after a rest and a warm-up."""
        torch = self.torch
        runner.take(torch, self.problem, self.of)
        self.change(None)
        runner.prepare()
        budget, spent, warmed = 1000 * protocol["max_seconds"], 0.0, 0
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        while warmed < 1 or warmed < protocol["warmup"] and spent < budget / 4:
            first.record()
            runner.launch(self.stream())
            last.record()
            last.synchronize()
            spent += first.elapsed_time(last)
            warmed += 1
        planned = max(1, min(protocol["iterations"], int(budget * warmed / max(spent, 1e-6))))
        keys = self.originals["k"].shape
        signs = (torch.randint(0, 2, (planned, 2, keys[0], keys[1], 1, keys[3]), device=self.here) * 2 - 1).to(self.originals["k"].dtype)
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(planned)]
        begun, ended, errors, samples = torch.cuda.Event(), torch.cuda.Event(), [], []
        torch.cuda.synchronize()
        time.sleep(protocol["rest_ms"] / 1000)
        torch.cuda._sleep(SLEEP_CYCLES)
        for _ in range(warmed):
            runner.launch(self.stream())
        begun.record()
        for i in range(planned):
            self.change(signs[i])
            runner.prepare()
            runner.poison()
            events[i][0].record()
            runner.launch(self.stream())
            events[i][1].record()
            found = runner.output()
            of_this = [self.for_heads(signs[i][0 if n < 2 else 1], each).float() for n, each in enumerate(found)]
            errors.append(self.reference.squares_of_error(torch, found, of_this))
            found = None
        ended.record()
        while not begun.query():
            time.sleep(SAMPLE_SECONDS)
        while not ended.query():
            samples.append(self.harness.ask({"op": "sample"}))
            time.sleep(SAMPLE_SECONDS)
        torch.cuda.synchronize()
        for i, of_launch in enumerate(errors):
            worst = self.reference.worst(of_launch)
            if worst is None or worst[0] > 1:
                raise WrongLaunch(f"timed launch {i + 1} of {planned}: {self.reason(worst)}")
        record["rounds"].append((sorted(a.elapsed_time(b) for a, b in events), samples))

    def reason(self, worst):
        return ("a gradient was never written or is not finite" if worst is None else
                f"{TILE} rows are off by {worst[1]:.3g} of their norm, allowed are {worst[2]:.3g}")

    def finished(self, record, runner):
        """The record as results files have it."""
        rounds = record.pop("rounds")
        if "error" in record:
            record.update(runner.facts)
        if runner.library:
            record["library"] = runner.library
        if record["status"] != "passed" or not rounds:
            return record
        of_all = [{"median": statistics.median(times), "p10": quantile(times, 0.1), "p90": quantile(times, 0.9)} for times, _ in rounds]
        times = {name: statistics.median(each[name] for each in of_all) for name in of_all[0]}
        times |= {"min": min(each[0] for each, _ in rounds), "launches": min(len(each) for each, _ in rounds)}
        record |= {"time_ms": times, "tflops": flops_of(self.problem) / times["median"] * 1e-9, "round_ms": [each["median"] for each in of_all],
                   "clock_mhz": middle(samples_of(rounds, "clock_mhz")), "power_w": middle(samples_of(rounds, "power_w")),
                   "round_clock_mhz": samples_of(rounds, "clock_mhz")}
        return record


def quantile(ordered, share):
    """By linear interpolation between the two nearest."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def middle(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def samples_of(rounds, field):
    """The median of each round's samples, or None where there are none."""
    return [middle([sample[field] for sample in samples]) for _, samples in rounds]
