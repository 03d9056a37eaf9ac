"""The library in other hands: as part of another CMake project, and as Python's package.

Usage: test_package.py installed BUILD   installs the library of this build into a prefix, and builds a program with
                                         find_package and with pkg-config
       test_package.py guest      configures a project that has this repository inside, with add_subdirectory and FetchContent
       test_package.py wheel      builds it and runs its program; builds the source archive and from it the wheel, which runs
                                  on another x86-64 than this one (under qemu-x86_64, where that is), and an editable
                                  installation
       test_package.py both       builds Python's package with both libraries, CUDA's and the emulator's, which runs
"""

import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from tool_test import COMPILING, JOBS, ROOT, expect, fail, find_nvcc, need, run, skip

from fa_tools.tools import code_blocks

GUEST = """cmake_minimum_required(VERSION 3.25)
project(guest LANGUAGES C CXX)
{include}
add_executable(guest guest.c)
target_link_libraries(guest PRIVATE fa::fa)
"""
INCLUDES = {"add_subdirectory": f"add_subdirectory({ROOT} fast_attention)",
            "FetchContent": f"include(FetchContent)\nFetchContent_Declare(fast_attention SOURCE_DIR {ROOT})\n"
                            "FetchContent_MakeAvailable(fast_attention)"}
FOUND = "find_package(fa {version} REQUIRED)"
# Keys are all alike, so every row of O is V's. Without NumPy, which needs more of a CPU than the library does.
CALL = """
import ctypes, fa
n = 128 * 64
buffers = [(ctypes.c_uint16 * (n + 8))(*[0x3c00] * (n + 8)) for _ in range(3)] + [(ctypes.c_uint16 * (n + 8))()]
q, k, v, o = ((ctypes.addressof(buffer) + 15) // 16 * 16 for buffer in buffers)
found = set()
for check in (True, False):
    fa._library.run(fa._library.prepare("16", (1, 1, 128, 64), "float16", device="cpu", check=check), (q, k, v, o), 0)
    found.add((hex(ctypes.c_uint16.from_address(o).value), "statements" in fa.counters()))
    ctypes.memset(o, 0, 2)
print(*(backend for backend, *_ in fa._library.built()), sorted(found))
"""


def configure(folder, how, include, *arguments, check=True):
    (folder / "CMakeLists.txt").write_text(GUEST.format(include=include), encoding="utf-8")
    (folder / "guest.c").write_text(code_blocks(ROOT / "docs/use.md", "c")[0], encoding="utf-8")
    return run("cmake", "-S", folder, "-B", folder / how, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *arguments,
               check=check, timeout=COMPILING)


def computes(program):
    if "2.0 in bf16" not in (said := run(program)):
        fail(said)


def installed(folder, build):
    """The prefix has another name than the one that was configured: what is installed may be moved."""
    run("cmake", "--install", build, "--component", "fa", "--prefix", folder / "first")
    prefix = (folder / "first").rename(folder / "prefix")
    header = next(prefix.rglob("fa.h"))
    version = header.read_text(encoding="utf-8").split('FA_VERSION "')[1].split('"')[0]
    configure(folder, "find_package", FOUND.format(version=version), f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "find_package", timeout=COMPILING)
    computes(folder / "find_package/guest")
    if "compatible" not in configure(folder, "later", FOUND.format(version=99), f"-DCMAKE_PREFIX_PATH={prefix}", check=False):
        fail("find_package takes it for version 99")

    need("pkg-config")
    os.environ["PKG_CONFIG_PATH"] = str(next(prefix.rglob("fa.pc")).parent)
    expect(run("pkg-config", "--modversion", "fa").strip() == version, f"pkg-config does not say {version}")
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "fa"))
    run("g++", "-xc", folder / "guest.c", "-xnone", "-o", folder / "guest", *flags, timeout=COMPILING)
    library = next(prefix.rglob("libfa.so")).parent
    os.environ["LD_LIBRARY_PATH"] = str(library)
    computes(folder / "guest")
    (library / "libfa.so").unlink()  # a program needs the name with the first number alone
    computes(folder / "guest")


def guest(folder, how):
    said = configure(folder, how, INCLUDES[how])
    targets = run("ninja", "-C", folder / how, "-t", "targets", "all")
    if "CTestTestfile" in said or re.search(r"^fa_tests:", targets, re.MULTILINE):
        fail(f"{how}: another project gets the tests, too")
    alone = re.compile(r"-- (The C|Detecting|Check|Performing|Looking|Found|Configuring|Generating|Build files|.*: fetching )")
    if ours := [line for line in said.splitlines() if line and not alone.match(line)]:
        fail(f"{how}: another project is told {ours[0]!r}")
    return folder / how


def answers(python, how, *before, says="emulator-checked emulator"):
    said = run(*before, python, "-c", CALL, cwd="/", timeout=COMPILING).rstrip()
    expect(said.splitlines()[-1] == f"{says} [('0x3c00', False), ('0x3c00', True)]", f"{how}: {said}")


need("ninja")
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    if sys.argv[1] == "installed":
        installed(folder, sys.argv[2])
        sys.exit(print("installed, found by find_package and by pkg-config"))
    if sys.argv[1] == "both":
        nvcc, _ = find_nvcc()
    else:
        for how in INCLUDES:
            build = guest(folder, how)
        if sys.argv[1] == "guest":
            sys.exit(print("configured with add_subdirectory and with FetchContent"))
        run("cmake", "--build", build, "--target", "guest", "-j", JOBS, timeout=COMPILING)
        computes(build / "guest")

    os.environ.pop("GITHUB_REPOSITORY", None)
    os.environ |= {"FA_BACKEND": "emulator", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run(sys.executable, "-m", "venv", folder / "venv", timeout=COMPILING)
    python = folder / "venv/bin/python"
    # The wheel is made from the source archive, so what that lacks is found. Where it is from the archive alone is told.
    back_end = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    said = run(python, "-m", "pip", "install", *back_end["requires"], check=False, timeout=COMPILING)
    run(python, "-c", f"import {back_end['build-backend']} as made; made.build_sdist({str(folder)!r})", cwd=ROOT, check=False,
        env={**os.environ, "GITHUB_REPOSITORY": "somebody/kernels"})
    sdist = next(folder.glob("*.tar.gz"), None) or skip(f"pip has no back end: {said.strip().splitlines()[-1]}")
    if sys.argv[1] == "both":
        os.environ |= {"FA_BACKEND": "cuda", "CUDACXX": nvcc}
        run(python, "-m", "pip", "install", "--no-deps", sdist, "-C", "cmake.define.CMAKE_CUDA_ARCHITECTURES=90a", timeout=3 * COMPILING)
        answers(python, "both", says="cuda emulator-checked emulator")
        sys.exit(print("CUDA's library and the emulator's in one package"))
    said = run(python, "-m", "pip", "wheel", sdist, "--no-deps", "-w", folder, check=False, timeout=COMPILING)
    wheel = next(folder.glob("*.whl"), None) or skip(f"pip cannot build: {said.strip().splitlines()[-1]}")
    run(python, "-m", "pip", "install", "--no-deps", wheel, timeout=COMPILING)
    answers(python, "the wheel")
    if "Source, https://github.com/somebody/kernels" not in (said := run(python, "-m", "pip", "show", "-v", "fast-attention")):
        fail(f"the wheel does not know where its source is: {said}")
    version = wheel.name.split("-")[1]
    if not (said := run(python, "-m", "fa", cwd="/")).startswith(f"fa {version}, "):
        fail(f"of the wheel {version} python -m fa says {said.splitlines()[0]}")
    if (qemu := shutil.which("qemu-x86_64")) and sysconfig.get_platform() == "linux-x86_64":
        for processor in ("Haswell", "qemu64"):
            answers(python, f"the wheel on {processor}", qemu, "-cpu", processor)
    run(python, "-m", "pip", "uninstall", "-y", "fast-attention", timeout=COMPILING)
    run(python, "-m", "pip", "install", "--no-deps", "-e", ROOT, timeout=COMPILING)
    answers(python, "an editable installation")
    print(f"guest, {wheel.name} made from {sdist.name}, and an editable installation")
