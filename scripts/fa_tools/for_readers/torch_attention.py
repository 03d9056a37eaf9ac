"""Attention of other libraries ("peers") in PyTorch, for fa_tools.for_readers.harness to measure beside the kernels.

Needs only torch, and torch only when something is to be run: add() imports it. Peers whose own package is missing are
left out with a sentence."""

import contextlib
import ctypes
import importlib
import importlib.metadata
import itertools
import warnings

from fa_tools.for_readers.harness import LAUNCH, PREPARE, Failed, NotTaken, Output, first_line


class Missing(Exception):
    """One sentence: why there is no such peer here at all."""


# --- Libraries -------------------------------------------------------------------------------------------------


class Sdpa:
    """One back end of PyTorch's scaled_dot_product_attention; `backend` is its name in SDPBackend."""

    name, refusals = "PyTorch", ("No available kernel", "No viable backend")

    def __init__(self, torch, implementation, backend):
        self.torch, self.implementation, self.backend = torch, implementation, backend
        self.version = str(torch.__version__)

    def active(self):
        attention = self.torch.nn.attention
        return attention.sdpa_kernel(getattr(attention.SDPBackend, self.backend))

    def take(self, problem):
        """Where PyTorch's function cannot say what is to be computed: FlashAttention-2 by its own function, cuDNN not."""
        causal, self.direct, self.options = "mask" in problem, None, {}
        if "softcap" in problem:
            raise NotTaken("PyTorch's function has no softcap")
        if "lengths" in problem or "window" in problem or causal and "kv_len" in problem:
            if self.backend != "FLASH_ATTENTION":
                raise NotTaken("in PyTorch packed sequences reach it as nested tensors alone, which lie in another way"
                               if "lengths" in problem else "PyTorch's function has no window" if "window" in problem else
                               "PyTorch's is_causal is aligned at the top left where there are more keys than queries, or fewer")
            of = sequences_of(self.torch, problem) if "lengths" in problem else {}
            self.direct = (of.get("cu_seqlens_q"), of.get("cu_seqlens_k"), of.get("max_seqlen_q", problem["seq_len"]),
                           of.get("max_seqlen_k", problem.get("kv_len", problem["seq_len"])), 0.0, causal, False)  # no dropout, no debugging
            if "window" in problem:
                self.options = dict(zip(("window_size_left", "window_size_right"), problem["window"]))
        else:
            self.options = {**({"is_causal": True} if causal else {}), **({"enable_gqa": True} if "kv_heads" in problem else {})}

    def arguments(self, q, k, v):
        return tuple(tensor.transpose(-3, -2) for tensor in (q, k, v)) if self.direct else (q, k, v)

    def launch(self, q, k, v):
        if self.direct:  # aligned at the bottom right, as FlashAttention is from 2.1 on
            return self.torch.ops.aten._flash_attention_forward(q, k, v, *self.direct, **self.options)[0]
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v, **self.options)

    def output(self, result):
        return result.transpose(-3, -2) if self.direct else result

    def refusal(self, _):
        return f"PyTorch {self.version} does not run {self.implementation} ({self.backend}) here"


class FlashAttention:
    """A package with a flash_attn_func of [batch, seq_len, heads, head_dim], and of packed sequences a
    flash_attn_varlen_func of [rows, heads, head_dim]; they get the kernels' tensors as views of that shape. `modules`: where
    the functions may be; `packages`: which of them has the version."""

    refusals = ("does not support", "only supports", "only support", "not supported", "Unsupported")

    def __init__(self, implementation, modules, packages, **options):
        self.implementation, self.always = implementation, options
        module = import_first(modules, packages[0])
        self.call = getattr(module, "flash_attn_func", None)
        if self.call is None:
            raise Missing(f"{module.__name__} has no flash_attn_func")
        self.call_packed = getattr(module, "flash_attn_varlen_func", None)
        self.name, self.version = packages[0], "0.0"
        for package in packages:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                self.name, self.version = package, importlib.metadata.version(package)
                break

    def active(self):
        return contextlib.nullcontext()

    def take(self, problem):
        self.packed, self.options = "lengths" in problem, {**self.always, **({"causal": True} if "mask" in problem else {}),
                                                              **({"window_size": tuple(problem["window"])} if "window" in problem else {}),
                                                              **({"softcap": problem["softcap"]} if "softcap" in problem else {})}
        if self.packed:
            if self.call_packed is None:
                raise NotTaken(f"{self.name} {self.version} has no flash_attn_varlen_func")
            self.options.update(sequences_of(importlib.import_module("torch"), problem))

    def arguments(self, q, k, v):
        return tuple(tensor.transpose(-3, -2) for tensor in (q, k, v))

    def launch(self, q, k, v):
        return (self.call_packed if self.packed else self.call)(q, k, v, **self.options)

    def output(self, result):
        return (result[0] if isinstance(result, (tuple, list)) else result).transpose(-3, -2)

    def refusal(self, problem):
        return f"{self.name} {self.version}: {first_line(problem)}"


class FlashAttentionOperator(FlashAttention):
    """The operator that a package was built with, which takes windows: fa3-fwd was built without them, and xformers without a
    softcap."""

    def __init__(self, implementation, torch):
        self.implementation, self.always = implementation, {}
        self.name, self.version = operators_of_flash_attention_3()
        self.operator, self.call = torch.ops.flash_attn_3.fwd, self.forward
        self.call_packed = self.forward

    def forward(self, q, k, v, causal=False, window_size=(-1, -1), **options):
        """A single split, as is flash_attn_func's default."""
        left, right = window_size
        return self.operator(q, k, v, softmax_scale=q.shape[-1] ** -0.5, is_causal=causal, window_size_left=left,
                             window_size_right=right, num_splits=1, **options)


class FlashAttention4(FlashAttention):
    def take(self, problem):
        refuse_scores(problem)
        super().take(problem)


LARGEST_E4M3 = 448


def to_e4m3(torch, tensor, **of_what):
    """tensor in e4m3 with a scale for each `dim`, or one for all, and the scales: common/harness/fp8.cpp's, bit for bit."""
    numbers = tensor.float()
    largest = numbers.abs().amax(**of_what)
    return (numbers * (LARGEST_E4M3 / largest)).to(torch.float8_e4m3fn), largest / LARGEST_E4M3


class FlashAttentionFp8(FlashAttention):
    """FlashAttention-3's attention of e4m3, with a scale per head. Q, K and V are rounded by prepare()."""

    fp8 = True

    def take(self, problem):
        if problem["dtype"] != "bf16" or problem.get("fp8") != "head" or "kv_heads" in problem:
            raise NotTaken("its FP8 gives bf16, with a scale per head that Q, K and V have alike")
        refuse_scores(problem)
        super().take(problem)

    def prepare(self, q, k, v):
        torch = importlib.import_module("torch")
        rounded = [to_e4m3(torch, tensor, dim=(-2, -1), keepdim=True) for tensor in (q, k, v)]
        self.scales = {f"{name}_descale": scale[..., 0, 0] for name, (_, scale) in zip("qkv", rounded)}
        return [numbers.transpose(-3, -2).contiguous() for numbers, _ in rounded]

    def launch(self, q, k, v):
        return self.call(q, k, v, **self.scales, **self.options)


class CudnnFp8:
    """cuDNN's attention of e4m3, by the graph of its Python package: a scale per tensor, and on Hopper O in e4m3, too, which
    is half as many bytes as the others write."""

    fp8, name, implementation, refusals = True, "cudnn-frontend", "cuDNN in FP8", ()

    def __init__(self):
        self.cudnn = import_first(("cudnn",), "nvidia-cudnn-frontend")
        self.version = f"{self.cudnn.__version__}+cudnn{self.cudnn.backend_version_string()}"

    def active(self):
        return contextlib.nullcontext()

    def take(self, problem):
        if problem["dtype"] != "bf16" or problem.get("fp8") != "head" or {"mask", "kv_heads", "kv_len"} & set(problem):
            raise NotTaken("measured without a mask, with as many queries as keys")
        refuse_scores(problem)
        self.graph = None

    def build(self, torch, shape):
        """The graph for [batch, heads, rows, head_dim], with tensors that prepare() fills."""
        cudnn = self.cudnn
        fp8, fp32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
        self.handle = cudnn.create_handle()
        graph = cudnn.pygraph(io_data_type=fp8, intermediate_data_type=fp32, compute_data_type=fp32, handle=self.handle)
        self.tensors = {name: torch.empty(shape, dtype=torch.float8_e4m3fn, device="cuda") for name in "qkvo"}
        inputs = {name: graph.tensor(name=name, dim=list(shape), stride=list(self.tensors[name].stride()), data_type=fp8)
                  for name in "qkv"}
        # P is at most 1, so that times 256 it fits.
        self.scales = {**{f"descale_{name}": torch.ones(1, device="cuda") for name in "qkv"},
                       "descale_s": torch.full((1,), 1 / 256, device="cuda"), "scale_s": torch.full((1,), 256.0, device="cuda"),
                       "scale_o": torch.ones(1, device="cuda")}
        scales = {name: graph.tensor(name=name, dim=[1] * 4, stride=[1] * 4, data_type=fp32) for name in self.scales}
        o, _, most_s, most_o = graph.sdpa_fp8(**inputs, **scales, attn_scale=shape[-1] ** -0.5, generate_stats=False, name="sdpa")
        o.set_output(True).set_dim(list(shape)).set_stride(list(self.tensors["o"].stride())).set_data_type(fp8)
        self.pack = {**{tensor: self.tensors[name] for name, tensor in inputs.items()}, o: self.tensors["o"],
                     **{tensor: self.scales[name] for name, tensor in scales.items()}}
        for most in (most_s, most_o):
            most.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(fp32)
            self.pack[most] = torch.zeros(1, device="cuda")
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        self.workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
        self.graph = graph

    def arguments(self, q, k, v):
        return q, k, v

    def prepare(self, *tensors):
        torch = importlib.import_module("torch")
        if self.graph is None:
            self.build(torch, tuple(tensors[0].shape))
        for name, tensor in zip("qkv", tensors):
            numbers, scale = to_e4m3(torch, tensor)
            self.scales[f"descale_{name}"].copy_(scale.reshape(1))
            self.tensors[name].copy_(numbers)
        # O is a mean of rows of V: in V's scale it fits, and does not fall below e4m3's normal numbers where many keys share
        # the weight.
        self.scales["scale_o"].copy_(1 / self.scales["descale_v"])
        return ()

    def launch(self):
        self.cudnn.set_stream(handle=self.handle, stream=importlib.import_module("torch").cuda.current_stream().cuda_stream)
        self.graph.execute(self.pack, self.workspace, handle=self.handle)
        return self.tensors["o"]

    def output(self, result):
        return result

    def widened(self, result, dtype):
        """O in 16 bits, which is no part of times."""
        return (result.float() * self.scales["descale_v"]).to(dtype)

    def refusal(self, problem):
        return first_line(problem)


def refuse_scores(problem):
    if {"window", "softcap"} & set(problem):
        raise NotTaken("measured without a window and without a softcap")


def sequences_of(torch, problem):
    """What flash_attn_varlen_func is told of packed sequences: the first row of each and the number of rows, on the GPU,
    and how long the longest is."""
    lengths = {"q": problem["lengths"], "k": problem.get("kv_lengths", problem["lengths"])}
    begins = {name: [0, *itertools.accumulate(each)] for name, each in lengths.items()}
    return {**{f"cu_seqlens_{name}": torch.tensor(each, dtype=torch.int32, device="cuda") for name, each in begins.items()},
            **{f"max_seqlen_{name}": max(each) for name, each in lengths.items()}}


def operators_of_flash_attention_3():
    """Loads torch.ops.flash_attn_3, and returns whose it is: (package, version)."""
    with contextlib.suppress(ImportError, OSError):  # what xformers needs, where torch is of a later CUDA
        where = importlib.import_module("nvidia.cuda_runtime").__path__[0]
        ctypes.CDLL(f"{where}/lib/libcudart.so.12", ctypes.RTLD_GLOBAL)
    module = import_first(("flash_attn_interface", "flash_attn_3._C", "xformers.flash_attn_3._C"), "xformers 0.0.34")
    package, version = "xformers" if module.__name__.startswith("xformers") else "flash-attn-3", "0.0"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version(package)
    return package, version


def import_first(modules, package):
    """The first of these modules that there is; what is there and does not load is no reason to take another."""
    for name in modules:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as problem:
            if problem.name and not (name == problem.name or name.startswith(problem.name + ".")):
                raise Missing(f"this Python cannot import {problem.name}, which {name} needs") from None
        except Exception as problem:  # a library of other versions may fail in any way
            raise Missing(f"{name} does not load: {first_line(problem)}") from None
    raise Missing(f"this Python cannot import {modules[0]} (package {package})")


def backward_of(name):
    """A peer of gradients (gradients.py, which needs this file)."""
    return lambda implementation, torch: importlib.import_module("fa_tools.for_readers.gradients").PEERS[name](implementation, torch)


# Peer: its implementation, and the library with it (given torch).
PEERS = {
    "fa2": ("FlashAttention-2", lambda name, torch: Sdpa(torch, name, "FLASH_ATTENTION")),
    "cudnn": ("cuDNN", lambda name, torch: Sdpa(torch, name, "CUDNN_ATTENTION")),
    # fa3_fwd_interface: the package fa3-fwd, forward only; flash_attn_interface: built from FlashAttention's sources.
    "fa3": ("FlashAttention-3", lambda name, torch: FlashAttention(
        name, ("fa3_fwd_interface", "flash_attn_interface"), ("fa3-fwd", "flash-attn-3"))),
    # As many parts of the keys as FlashAttention-3 likes, which PyTorch's users do not get by default.
    "fa3_splits": ("FlashAttention-3, its choice of splits", lambda name, torch: FlashAttention(
        name, ("fa3_fwd_interface", "flash_attn_interface"), ("fa3-fwd", "flash-attn-3"), num_splits=0)),
    # The same with windows.
    "fa3_window": ("FlashAttention-3", FlashAttentionOperator),
    "fa3_fp8": ("FlashAttention-3 in FP8", lambda name, torch: FlashAttentionFp8(
        name, ("fa3_fwd_interface", "flash_attn_interface"), ("fa3-fwd", "flash-attn-3"))),
    "cudnn_fp8": ("cuDNN in FP8", lambda name, torch: CudnnFp8()),
    **{f"{name}_backward": (implementation, backward_of(name))
       for name, implementation in (("fa2", "FlashAttention-2"), ("cudnn", "cuDNN"), ("fa3", "FlashAttention-3"))},
    "fa4": ("FlashAttention-4", lambda name, torch: FlashAttention4(name, ("flash_attn.cute",), ("flash-attn-4",))),
}


# --- In the harness --------------------------------------------------------------------------------------------


class Memory:
    """Memory of the GPU that is somebody else's, as torch takes it (the CUDA array interface, version 3). It knows no
    bfloat16, so elements are integers of 16 bits."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": "<i2", "version": 3}


class TorchPeer:
    """A library's attention of tensors at given addresses. Its output is in memory of PyTorch's, which the next launch
    gets again: the one before must be given back first."""

    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        self.shape = self.dtype = self.latest = None
        self.known = {}  # (address, shape, dtype): tensor

    def take(self, problem):
        """The problem that the next calls are about, with tensors as Problem of common/launch/problem.h says."""
        kv_heads, d = problem.get("kv_heads", problem["heads"]), problem["head_dim"]
        if "lengths" in problem:
            rows = [sum(problem[name]) for name in ("lengths", "kv_lengths" if "kv_lengths" in problem else "lengths")]
            self.shape, self.kv_shape = (problem["heads"], rows[0], d), (kv_heads, rows[1], d)
        else:
            self.shape = (problem["batch"], problem["heads"], problem["seq_len"], d)
            self.kv_shape = (problem["batch"], kv_heads, problem.get("kv_len", problem["seq_len"]), d)
        self.dtype = {"fp16": self.torch.float16, "bf16": self.torch.bfloat16}[problem["dtype"]]
        self.known, self.latest, self.taken, self.why_not, self.prepared = {}, None, False, None, None
        try:
            self.library.take(problem)
        except NotTaken as why_not:
            self.why_not = why_not

    def tensor(self, address, shape):
        if address not in self.known:
            self.known[address] = self.torch.as_tensor(Memory(address, shape), device="cuda").view(self.dtype)
        return self.known[address]

    def __call__(self, task, q, k, v, o, stream):
        torch = self.torch
        if self.why_not:
            raise self.why_not
        with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(stream)), self.library.active():
            shapes = self.shape, self.kv_shape, self.kv_shape
            if task == PREPARE:
                self.prepared = None
                self.prepared = self.library.prepare(*map(self.tensor, (q, k, v), shapes))
            elif task == LAUNCH:
                arguments = self.prepared
                if arguments is None:
                    arguments = self.library.arguments(*map(self.tensor, (q, k, v), shapes))
                self.latest = None
                self.latest = self.library.output(self.launch(arguments))
            else:
                if self.latest.dtype != self.dtype:  # an O in e4m3
                    self.latest = self.library.widened(self.latest, self.dtype)
                *strides, neighbours = self.latest.stride()
                if neighbours != 1:
                    raise RuntimeError("its output's rows are not contiguous")
                where = Output.from_address(o)
                where.data = self.latest.data_ptr()
                where.block_stride, where.head_stride, where.row_stride = (0, *strides)[-3:]

    def launch(self, arguments):
        """The first launch is where a library says that it does not take the problem."""
        if self.taken:
            return self.library.launch(*arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's reasons, a screenful
            try:
                result = self.library.launch(*arguments)
            except Exception as problem:
                if not any(words in str(problem) for words in self.library.refusals):
                    raise
                raise NotTaken(self.library.refusal(problem)) from None
        self.taken = True
        return result


def launch_once(name, problem):
    """For the profiler, which sees the second launch alone: one of random normal tensors."""
    import torch
    import torch.nn.attention

    implementation, make = PEERS[name]
    library = make(implementation, torch)
    peer = TorchPeer(torch, library)
    peer.take(problem)
    tensors = [torch.randn(shape, device="cuda", dtype=peer.dtype) for shape in (peer.shape, peer.kv_shape, peer.kv_shape)]
    with torch.no_grad(), library.active():
        arguments = library.arguments(*tensors)
        library.launch(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        library.launch(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def load():
    """Imports torch, if it is here: before the harness, so that it finds its own libraries first."""
    with contextlib.suppress(Exception):
        importlib.import_module("torch")


def needed():
    """torch, with a GPU. Failed without."""
    try:
        import torch
    except ImportError as problem:
        raise Failed(f"this Python cannot import {problem.name or 'torch'}, which --gradients needs; PYTHON names another one") from None
    if not torch.cuda.is_available():
        raise Failed(f"PyTorch {torch.__version__} finds no GPU, which --gradients needs")
    return torch


def add(harness, names):
    """Adds these peers to a harness. Returns their TorchPeers by the names of their records, and a sentence for each
    that cannot run."""
    try:
        import torch
        import torch.nn.attention
    except ImportError as problem:
        return {}, {f"peer/{name}": f"this Python cannot import {problem.name or 'torch'}" for name in names}
    if not torch.cuda.is_available():
        return {}, {f"peer/{name}": f"PyTorch {torch.__version__} finds no GPU" for name in names}
    added, missing = {}, {}
    for name in names:
        implementation, make = PEERS[name]
        try:
            library = make(implementation, torch)
        except Missing as problem:
            missing[f"peer/{name}"] = str(problem)
            continue
        peer = added[f"peer/{name}"] = TorchPeer(torch, library)
        harness.add(f"peer/{name}", {"name": library.name, "version": library.version,
                                     "implementation": library.implementation}, peer, getattr(library, "fp8", False))
    return added, missing
