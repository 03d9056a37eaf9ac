"""The program `peers` where there is no GPU, and the search for the headers that it is compiled with.

Usage: test_peers_program.py PROGRAM BACKEND
       test_peers_program.py --compile   (needs CUDA's headers)
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tool_test import COMPILING, ROOT, expect, run, skip

NAMES = ["ceiling/copy", "ceiling/matmul", "peer/cudnn_frontend"]


def has_gpu():
    return shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.DEVNULL,
                                                         stderr=subprocess.DEVNULL, check=False, timeout=60).returncode == 0


def test_program(program, backend, folder):
    expect(run(program, "--list").split() == NAMES, "--list does not name the peers")
    expect(f"Example: peers {NAMES[0]} " in run(program, "--help"), "--help shows no example of this program's")
    done = subprocess.run([program, "peer/nothing"], text=True, capture_output=True, check=False, timeout=60)
    expect(done.returncode == 2 and all(name in done.stderr for name in NAMES), f"an unknown peer: {done.stderr}")
    small = ["--batch", "1", "--heads", "1", "--seq-len", "128", "--json", str(folder / "r.json")]
    done = subprocess.run([program, *small], text=True, capture_output=True, check=False, timeout=60)
    if backend == "emulator":
        expect(done.returncode == 0, f"peers on the emulator ended with {done.returncode}: {done.stderr}")
        records = json.loads((folder / "r.json").read_text())["records"]
        expect([record["kernel"] for record in records] == NAMES, "the records are not those of the peers")
        for record in records:
            expect(record["status"] == "skipped" and "emulator" in record["reason"], f"{record}")
            expect(record["reason"] in done.stdout, f"the table does not say '{record['reason']}'")
    elif not has_gpu():
        lines = done.stderr.splitlines()
        expect(done.returncode == 3 and len(lines) == 1 and lines[0].startswith("error: "), f"without a GPU: {lines}")
        expect(not (folder / "r.json").exists(), "results without a GPU")


def test_headers(folder):
    """Header files of our own, in every place where they may be, and what CMake makes of them."""

    def write(path, **numbers):
        path = folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"#define {name} {value}\n" for name, value in numbers.items()))

    def frontend(place, minor):
        write(f"{place}/cudnn_frontend.h")
        write(f"{place}/cudnn_frontend_version.h", CUDNN_FRONTEND_MAJOR_VERSION=1, CUDNN_FRONTEND_MINOR_VERSION=minor)

    def cudnn(place, major):
        write(f"{place}/cudnn.h")
        write(f"{place}/cudnn_version.h", CUDNN_MAJOR=major)

    script = folder / "find.cmake"
    script.write_text(f"include({ROOT}/bench/peers/find_headers.cmake)\nfa_find_peer_headers()\n"
                      "foreach(name CUDNN_INCLUDES CUBLASLT_INCLUDES WITHOUT_CUDNN WITHOUT_MATMUL)\n"
                      'message(NOTICE "${name}=${FA_${name}}")\nendforeach()\n')
    python = folder / "bin/python3"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nprintf '%s' '/nowhere;{folder}/packages'\n")
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}

    def find(**folders):
        settings = [f"-D{name}={folder / value}" for name, value in folders.items()]
        lines = run("cmake", *settings, "-P", script, env=environment).splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return {name: value.replace(f"{folder}/", "") for name, value in found.items()}

    found = find()
    expect(found["WITHOUT_CUDNN"] == "built without cuDNN: no cudnn_frontend.h (CUDNN_FRONTEND_DIR)", found)
    expect(found["WITHOUT_MATMUL"] == "built without cuBLAS: no cublasLt.h beside CUDA's headers", found)
    expect(found["CUDNN_INCLUDES"] == found["CUBLASLT_INCLUDES"] == "", found)

    frontend("packages/include", 32)
    found = find()
    expect(found["WITHOUT_CUDNN"] == "built without cuDNN: no cudnn.h (CUDNN_DIR)", found)
    cudnn("packages/nvidia/cudnn/include", 9)
    write("packages/nvidia/cu13/include/cublasLt.h")
    found = find()
    expect(found == {"CUDNN_INCLUDES": "packages/include;packages/nvidia/cudnn/include", "WITHOUT_CUDNN": "",
                     "CUBLASLT_INCLUDES": "packages/nvidia/cu13/include", "WITHOUT_MATMUL": ""}, found)

    # What is named, and CUDA's own folder, come before the packages.
    frontend("own", 16)
    cudnn("own_cudnn/include", 9)
    write("cuda/cublasLt.h")
    found = find(CUDNN_FRONTEND_DIR="own", CUDNN_DIR="own_cudnn", CUDAToolkit_INCLUDE_DIRS="cuda")
    expect(found["CUDNN_INCLUDES"] == "own;own_cudnn/include", found)
    expect(found["CUBLASLT_INCLUDES"] == "cuda", found)

    frontend("old", 9)
    found = find(CUDNN_FRONTEND_DIR="old")
    expect("cudnn-frontend 1.9 is older than 1.16" in found["WITHOUT_CUDNN"], found)
    cudnn("old_cudnn", 8)
    found = find(CUDNN_DIR="old_cudnn")
    expect("cuDNN 8 is older than 9" in found["WITHOUT_CUDNN"], found)
    expect(found["CUDNN_INCLUDES"] == "", found)


def test_compile(folder):
    """That the sources fit CUDA's headers, and where they are here, cuDNN's."""
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    cuda = Path(nvcc).resolve().parent.parent / "include"
    if not (cuda / "cuda_runtime.h").exists():
        skip("CUDA's headers are not here")
    script = folder / "find.cmake"
    script.write_text(f"set(CUDAToolkit_INCLUDE_DIRS {cuda})\ninclude({ROOT}/bench/peers/find_headers.cmake)\n"
                      'fa_find_peer_headers()\nmessage(NOTICE "${FA_CUDNN_INCLUDES}\\n${FA_CUBLASLT_INCLUDES}")\n')
    settings = [f"-D{name}={os.environ[name]}" for name in ("CUDNN_FRONTEND_DIR", "CUDNN_DIR") if name in os.environ]
    cudnn, cublas = (line.split(";") if line else [] for line in run("cmake", *settings, "-P", script).split("\n")[:2])
    sources = {"cublaslt": cublas, "cudnn_attention": cudnn}
    compiler = os.environ.get("CXX") or shutil.which("g++") or skip("g++ is not installed")
    for name, needed in sources.items():
        if not needed:
            print(f"{name}.cpp is not compiled: its headers are not here")
            continue
        folders = [f"-isystem{include}" for include in [*needed, str(cuda)] if include != "/usr/include"]
        # As in bench/peers/CMakeLists.txt, which defines them for cuDNN's source alone; they do no harm to the others.
        defines = ["-DNV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING", "-DCUDNN_FRONTEND_SKIP_JSON_LIB"]
        run(compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-DFA_WITH_CUDA",
            *defines, f"-I{ROOT}", *folders, ROOT / f"bench/peers/{name}.cpp", timeout=COMPILING)


with tempfile.TemporaryDirectory() as temporary:
    if sys.argv[1] == "--compile":
        test_compile(Path(temporary))
    else:
        test_program(sys.argv[1], sys.argv[2], Path(temporary))
        (Path(temporary) / "headers").mkdir()
        test_headers(Path(temporary) / "headers")
