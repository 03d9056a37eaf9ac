"""The choice of the back end and the set-up, with stand-ins for nvidia-smi, nvcc and apt-get; what is pinned of Python's packages,
and the files that belong to the sources."""

import os
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

from support import ROOT, SCRIPTS, ScriptTest, main, normal, pins

from fa_tools import tools


class SetUp(ScriptTest):
    def bash(self, text, **options):
        path = f"{self.folder}/bin:/usr/bin:/bin"
        environment = {"PATH": path, "CUDACXX": "", "CUDA_HOME": str(self.folder), "CXX": "", "CMAKE_PREFIX_PATH": ""}
        return self.run_script("bash", "-c", f'. "{SCRIPTS}/lib/common.sh"\n{text}', env=environment, **options)


class BackEnd(SetUp):
    # The first GPU's driver and nvcc's version, if they are there; choose_backend's arguments; (back end, compiler) or an exit
    # code; and what is said of it.
    CASES = (
        (None, None, "auto auto 0", "emulator"),
        ("580.65.06", "13.0", "auto auto 0", "cuda system"),
        ("580.65.06", "13.0", "emulator auto 0", "emulator"),
        ("580.65.06", "13.0", "cuda wheels 0", "cuda wheels"),
        ("570.10", "12.8", "auto auto 0", "cuda system"),
        ("580.65.06", "12.4", "auto auto 0", "cuda wheels"),
        ("580.65.06", "12.4", "auto system 0", "emulator", "12.4", "--toolkit wheels"),
        ("580.65.06", "12.4", "cuda system 0", 3, "12.4", "12.8"),
        ("590.1", None, "auto auto 0", "cuda wheels"),
        ("535.104.05", "12.4", "auto auto 0", "emulator", "535.104.05", "580", "emulator"),
        ("535.104.05", "12.4", "cuda auto 0", 3, "535.104.05"),
        ("570.10", "13.0", "auto auto 0", "emulator", "570.10", "13.0"),
        (None, "13.0", "cuda auto 0", 3, "nvidia-smi", "--compile-only"),
        (None, "13.0", "cuda auto 1", "cuda system"),
        (None, "13.0", "cuda wheels 1", "cuda wheels"),
    )

    def test_choice(self):
        for driver, version, arguments, choice, *said in self.CASES:
            with self.subTest(driver=driver, nvcc=version, arguments=arguments):
                self.program("nvidia-smi", f'echo "NVIDIA Test, {driver}, 9.0"\n' if driver else "exit 9\n")
                self.program("nvcc", f'echo "Cuda compilation tools, release {version}, V{version}.88"\n')
                # A real nvcc in /usr/local/cuda or /opt/cuda would be found behind the stand-in.
                hidden = "" if version else "detect_nvcc() { return 1; }\n"
                done = self.bash(f'{hidden}choose_backend {arguments}; echo $BACKEND $TOOLCHAIN')
                if choice == 3:
                    self.assert_one_sentence(done, *said, code=3)
                    continue
                self.assertEqual((done.returncode, done.stdout), (0, f"{choice}\n"), done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), bool(said))
                for part in said:
                    self.assertIn(part, done.stderr)


    def test_a_t4_takes_the_ladder_as_far_as_it_can(self):
        """With fp16 and a head_dim of 64 it runs six kernels."""
        for capability, arguments, expected in (
                ("7.5", "", "--dtype fp16 --head-dim 64"), ("7.5", "05 --dtype=bf16", "--head-dim 64"), ("7.5", "--head-dim 128", "--dtype fp16"),
                ("7.5", "--protocol ladder", ""), ("8.0", "", ""), ("12.0", "", "")):
            with self.subTest(capability=capability, arguments=arguments):
                self.program("nvidia-smi", f'echo "Tesla T4, 580.65.06, {capability}"\n')
                self.program("nvcc", 'echo "Cuda compilation tools, release 13.0, V13.0.88"\n')
                done = self.bash(f'choose_backend auto auto 0; options_of_gpu {arguments}; echo "${{OPTIONS[@]}}"')
                self.assertEqual((done.returncode, done.stdout), (0, f"{expected}\n"), done.stderr)
        done = self.bash("choose_backend emulator auto 0; options_of_gpu; echo ${#OPTIONS[@]}")
        self.assertEqual((done.returncode, done.stdout), (0, "0\n"), done.stderr)


class Packages(SetUp):
    def ensure(self, missing, can_install="return 1", apt="exit 1", more="", kind="test"):
        self.program("apt-get", apt)
        tests = " | ".join(missing)
        return self.bash(f"""
            ROOT={self.folder}; SETUP_LOG={self.folder}/setup.log
            found() {{ case $1 in {tests}) [[ -e {self.folder}/installed ]] ;; *) return 0 ;; esac; }}
            can_install() {{ {can_install}; }}
            as_root() {{ "$@"; }}
            {more}
            ensure_packages {kind} emulator
        """)

    def test_a_package_is_here_if_all_that_it_brings_is(self):
        def found(package):
            script = f'. "{SCRIPTS}/lib/common.sh"; found {package}'
            return self.run_script("/bin/bash", "-c", script, env={"PATH": f"{self.folder}/bin", "CPATH": str(self.folder)})

        self.program("dirname", "exec /usr/bin/dirname \"$@\"\n")
        for name in ("addr2line", "c++filt", "readelf"):
            self.program(name, "")
        self.assertEqual(found("binutils").returncode, 1)
        self.program("strip", "")
        self.assertEqual(found("binutils").returncode, 0)
        self.assertEqual(found("no-such-package").returncode, 4)

    def test_nothing_missing_is_silent(self):
        done = self.ensure(["nothing"], apt=f"touch {self.folder}/called")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertFalse((self.folder / "called").exists())

    def test_says_exactly_which_without_root(self):
        done = self.ensure(["cmake", "libboost-context-dev", "git"])
        self.assert_one_sentence(done, "apt-get install cmake libboost-context-dev git", code=4)
        self.assertEqual(list(self.folder.iterdir()), [self.folder / "bin"], "something was written")

    def test_without_python_there_are_charts_missing_or_tests(self):
        no_python = "have() { [[ $1 != python3 ]] && command -v \"$1\" >/dev/null; }"
        self.assertEqual(self.ensure(["python3-venv"], more=no_python, kind="run").returncode, 0)
        self.assert_one_sentence(self.ensure(["python3-venv"], more=no_python), "apt-get install python3-venv", code=4)

    def test_goes_on_without_what_is_not_essential(self):
        done = self.ensure(["libgtest-dev", "git"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("apt-get install libgtest-dev git", done.stderr)

    def test_installs_as_root(self):
        log = self.folder / "apt.log"
        apt = f'echo Hit:1; echo "$@" >>{log}\ncase "$*" in *install*) touch {self.folder}/installed ;; esac\n'
        done = self.ensure(["cmake", "git"], can_install="return 0", apt=apt)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertRegex(log.read_text(), r"install --yes --no-install-recommends cmake git\n$")

    def test_a_failing_installation_is_one_sentence_with_the_reason(self):
        done = self.ensure(["cmake"], can_install="return 0", apt="echo Hit:1; echo E: no such package; exit 100")
        self.assert_one_sentence(done, "could not install what is missing: no such package (", "setup.log has all", "apt-get install cmake", code=4)

    def test_an_archive_that_does_not_answer_is_one_sentence(self):
        for apt in ("sleep 50", "echo Err:1 http://nowhere.example bookworm InRelease; echo 'W: Failed to fetch'"):
            apt += f'\ncase "$*" in *install*) touch {self.folder}/installed ;; esac'
            done = self.ensure(["cmake"], can_install="return 0", apt=apt, more="APT_PATIENCE=1")
            lines = [line for line in done.stderr.splitlines() if not line.endswith(" ...")]
            self.assertEqual((done.returncode, len(lines)), (4, 1), done.stderr)
            self.assertIn("the package archive does not answer", lines[0])
            self.assertIn("apt-get install cmake", lines[0])


class VirtualEnvironment(SetUp):
    def test_no_network_means_no_charts_but_success(self):
        self.program("python3", "echo could not connect >&2; exit 1")
        done = self.bash(f"""
            ROOT={self.folder}; SETUP_LOG={self.folder}/setup.log; VENV={self.folder}/.venv
            ensure_venvs "$VENV" || echo charts=0
        """)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "charts=0\n")
        self.assertIn("note: no charts", done.stderr)
        self.assertFalse((self.folder / ".venv").exists())

    def test_a_python_that_a_script_calls_is_the_same_python(self):
        """pyenv's python3 is a script: what it calls finds another python3 first, and must not make .venv again."""
        stamp = 'venv_stamp "$VENV"'
        python = self.folder / "bin" / "python3"
        python.parent.mkdir()
        python.symlink_to(sys.executable)
        direct = self.bash(stamp).stdout
        python.unlink()
        self.program("python3", f'exec {sys.executable} "$@"\n')
        self.assertEqual(self.bash(stamp).stdout, direct)
        self.assertIn(sys.version.split()[0], direct)

    @unittest.skipIf(os.geteuid(), "only root can give a folder away")
    def test_an_environment_of_another_user_is_left_alone(self):
        venv = self.folder / ".venv"
        venv.mkdir()
        os.chown(venv, 65534, 65534)
        done = self.bash(f"SETUP_LOG={self.folder}/setup.log; ensure_venvs {venv} || echo charts=0")
        self.assertEqual((done.returncode, done.stdout), (0, "charts=0\n"))
        self.assertIn("note: no charts: .venv belongs to nobody and does not work here", done.stderr)
        self.assertTrue(venv.exists())


class Checkout(SetUp):
    """scripts/run.sh in a checkout where nothing can be built or installed."""

    def setUp(self):
        super().setUp()
        self.root = self.checkout()
        for name in ("common/cli/options.cpp", "common/harness/inputs.cpp", "common/emulator/programs/cuda_source.py", "bench/protocols.json"):
            self.write(f"checkout/{name}", (ROOT / name).read_text(encoding="utf-8"))
        for name in ("01_naive", "02_online_softmax", "beyond/causal"):
            self.write(f"checkout/kernels/{name}.cu", "")
        for name in ("apt-get", "cmake", "nvidia-smi", "sudo"):
            self.program(name, "exit 1\n")

    def run_sh(self, *arguments, before=(), script="run.sh"):
        env = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "CXX": "", "CPATH": str(self.folder), "RESULTS_DIR": ""}
        return self.run_script(*before, self.root / "scripts" / script, *arguments, env=env, cwd=self.folder)

    def test_bad_arguments_are_refused_before_anything_is_built(self):
        os.mkfifo(self.folder / "pipe")
        for arguments, words in (
            ("--seq-len 100", "--seq-len must be a multiple of 128 from 128 to 4194304, not 100"),
            ("--seq-len=256,0", "--seq-len must be a multiple of 128 from 128 to 4194304, not 0"),
            ("--seq-len -128", "--seq-len must be a multiple of 128 from 128 to 4194304, not -128"),
            ("--seq-len 08", "--seq-len must be a multiple of 128 from 128 to 4194304, not 08"),
            ("--seq-len 12345600", "--seq-len must be a multiple of 128 from 128 to 4194304, not 12345600"),
            ("--seq-len 4194432", "--seq-len must be a multiple of 128 from 128 to 4194304, not 4194432"),
            ("--seq-len 128,", "--seq-len takes values with a comma between two, not '128,'"),
            ("--seq-len 100 --mask causal 1", "--seq-len must be a multiple"),
            ("causal 1", "causal and 01 are in different programs: give kernels of beyond/, or numbered ones"),
            ("--seq-len", "--seq-len needs a value"), ("--head-dim 80", "--head-dim must be 64 or 128, not 80"),
            ("--dtype fp32", "--dtype takes one of fp16, bf16"), ("--heads 0", "--heads must be a whole number from 1 on"),
            ("--batch x", "--batch must be"), ("--iters -1", "--iters must be"),
            ("--inputs nice", "there are no inputs 'nice'"), ("--protocol nice", "unknown protocol 'nice'"),
            ("99", "unknown kernel '99', there are: 01_naive 02_online_softmax"), ("naive", "unknown kernel 'naive'"),
            ("--no-races 3", "unknown kernel '3'"), ("--warmpu 3", "there is no option --warmpu"),
            ("--json .", "cannot write .: Is a directory"),
            ("--json none/r.json", "cannot write none/r.json: No such file or directory"),
            ("--json=", "--json needs the name of a file"), ("--trace=bin", "cannot write bin: Is a directory"),
        ):
            with self.subTest(arguments):
                self.assert_one_sentence(self.run_sh(*arguments.split()), words)
        for arguments, words in ((("--boggus", "r.json"), "unrecognized arguments: --boggus"), (("none.json",), "none.json cannot be read")):
            with self.subTest(arguments):
                self.assert_one_sentence(self.run_script(self.root / "scripts" / "fa", "chart", *arguments), words)
        self.assertFalse((self.root / "build").exists() or (self.root / ".venv").exists())

    def test_good_arguments_go_on(self):
        for arguments in ("", "1 02 02_online_softmax", "--seq-len 128,0256 --head-dim=64 --dtype fp16",
                          "causal --seq-len 100 --mask causal", "beyond/causal --lengths 300,0,17 --kv-heads 1",
                          "--no-races 01 --flush-l2 --inputs hot_row --protocol quick --seed 0 --warmup 0",
                          f"--trace=/dev/null --json {self.folder}/r.json",
                          "--program-help --seq-len 5", "--list --heads 0"):
            with self.subTest(arguments):
                done = self.run_sh(*arguments.split())
                self.assertEqual(done.returncode, 4, done.stderr)  # what is missing cannot be installed
                self.assertIn("install what is missing", done.stderr)

    def test_words_behind_options_of_ctest_go_on(self):
        for arguments in ("-R 02 -j 4", "--repeat until-fail:2 --timeout=5", "--all -E x -LE y -VV"):
            with self.subTest(arguments):
                self.assertIn("install what is missing", self.run_sh(*arguments.split(), script="test.sh").stderr)

    def test_two_runs_of_one_second_keep_both_results_and_failed_ones_leave_none(self):
        """The program waits until the other run has chosen its file, too."""
        for name, text in (("cmake", "echo cmake version 3.99\n"), ("ninja", ""), ("g++", "echo 14\n"), ("date", "echo now\n")):
            self.program(name, text)
        self.write("boost/context/fiber.hpp", "")
        program = self.write("checkout/build/emulator-checked/bin/beyond", """#!/bin/sh
            case $2 in --list) exit 0 ;; --seed=1) exit 3 ;; --seed=2) kill -TERM $PPID; exit 0 ;; esac
            >started.$$; while [ ! -e "$(ls started.* | sed -n 2p)" ]; do sleep 0.05; done
            echo $$ >"$3.new"; mv "$3.new" "$3"
            """)
        program.chmod(0o755)

        def run(*arguments):
            return self.run_sh("causal", *arguments, "--no-charts", "--backend", "emulator").returncode

        results = self.root / "results"
        self.assertEqual([run("--list"), run("--seed=1"), run("--seed=2")], [0, 3, -15])
        self.assertEqual(list(results.iterdir()), [])
        with ThreadPoolExecutor() as both:
            self.assertEqual([*both.map(lambda _: run(), range(2))], [0, 0])
        self.assertEqual(sorted(path.name for path in results.iterdir()), ["now-run2.json", "now.json"])

    def test_another_users_checkout_is_refused_and_left_alone(self):
        python = self.root / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        private = self.folder / "private"
        private.mkdir()
        python.symlink_to(private / "python3")
        self.write("scan.cu", "")
        self.write("checkout/build/emulator-checked/build.ninja", "")
        self.write("checkout/CMakePresets.json", '{"buildPresets": [{"name": "emulator-checked"}]}')
        self.write("checkout/docs/01_naive.md", "```diff\n@@ 01_more\n-a\n+b\n```\n")
        kernel = self.write("checkout/kernels/01_naive.cu", "a\n")
        self.folder.chmod(0o755)
        before = sorted(self.root.rglob("*"))
        folders = self.root, self.root / "build", self.root / "build/emulator-checked"
        for path, mode in ((private, 0), (kernel, 0o444), *((folder, 0o555) for folder in folders)):
            path.chmod(mode)
            self.addCleanup(path.chmod, 0o755)
        other = [] if os.geteuid() else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for words, file in (("run.sh --backend emulator", "build/setup.log"), ("fa emulate scan.cu", "build/emulator-checked/emulate.lock"),
                            ("fa adopt 01", "build/adopt.log"), ("fa solutions 01_more", "build/setup.log"),
                            ("fa solutions --apply 01_more", "kernels/01_naive.cu")):
            with self.subTest(words):
                script, *arguments = words.split()
                done = self.run_sh(*arguments, before=other, script=script)
                self.assert_one_sentence(done, f"{file}: this checkout belongs to", "use a copy of your own", code=4)
        done = self.run_sh("validate", "r.json", before=other, script="fa")  # with or without a jsonschema elsewhere
        self.assertRegex(done.stderr, r"^error: [^\n]*\n$")
        self.assertEqual(sorted(self.root.rglob("*")), before)


class PlainCMake(ScriptTest):
    def test_missing_libraries_are_named_at_once(self):
        """The proxy does not answer, as if there were no network. FetchContent alone would try for 85 s, longer than
        run_script waits."""
        if not shutil.which("cmake") or not shutil.which("ninja"):
            self.skipTest("no cmake or no ninja")
        env = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
        for missing, packages in ((("nlohmann_json", "CLI11"), "nlohmann-json3-dev libcli11-dev"),
                                  (("CLI11", "Boost"), "libcli11-dev libboost-context-dev")):
            with self.subTest(packages):
                done = self.run_script("cmake", "-S", ROOT, "-B", self.folder / packages.split()[0], "-G", "Ninja",
                                       *(f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in missing), env=env)
                self.assertEqual(done.returncode, 1)
                said = " ".join(done.stderr.split())
                self.assertIn(f"apt-get install {packages}), or build with scripts/run.sh, which does.", said)


class Steps(SetUp):
    def test_standard_output_that_cannot_be_written(self):
        self.assert_one_sentence(self.bash("say x >/dev/full; echo more >&2"), "cannot write to standard output")

    def test_only_the_failing_step_is_shown(self):
        log = self.folder / "x.log"
        done = self.bash(f"step one {log} echo first; step two {log} sh -c 'echo second; exit 7' || echo rc=$?")
        self.assertEqual(done.stdout, "rc=7\n")
        self.assertIn("second", done.stderr)
        self.assertNotIn("first", done.stderr)

    def test_versions(self):
        cases = [("13.0", "12.8", 0), ("12.8", "12.8", 0), ("12.10", "12.8", 0), ("12.7", "12.8", 1),
                 ("580.159.04", "580", 0), ("3.25.1", "3.25", 0), ("3.9", "3.25", 1), ("12", "12", 0)]
        for have, want, expected in cases:
            done = self.bash(f"version_at_least {have} {want}")
            self.assertEqual(done.returncode, expected, f"{have} {want}")


class Walk(ScriptTest):
    @unittest.skipUnless(shutil.which("git"), "no git")
    def test_finds_what_git_lists(self):
        ignore = (ROOT / ".gitignore").read_text()
        names = [rule.replace("*", "x") for rule in ignore.splitlines() if rule and not rule.startswith("#")]
        names += ["kept.py", ".hidden/kept", "docs/build.md", "buildx/kept"]
        self.write(".gitignore", ignore)
        for name in names:
            for place in ("", "below/", "build/below/"):
                name = name.lstrip("/")
                self.write(f"{place}{name}file" if name.endswith("/") else f"{place}{name}", "x")
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True, timeout=60)
        subprocess.run(["git", "add", "kept.py"], cwd=self.folder, check=True, timeout=60)
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.folder, check=True,
                                timeout=60, capture_output=True, text=True).stdout.split()
        walked = [path.relative_to(self.folder).as_posix() for path in tools.repository_files(self.folder)]
        self.assertEqual(sorted(walked), sorted(listed))
        self.assertIn("below/build/file", listed)
        self.assertNotIn("build/file", listed)


# What README promises has these; the pins of these files must suit them.
PYTHONS = {"Debian 12": "3.11.2", "Ubuntu 24.04": "3.12.3", "Debian 13": "3.13.5"}
REQUIREMENTS = {"scripts/requirements.txt": ".venv", "scripts/docs-requirements.txt": ".venv-docs",
                "tests/requirements.txt": ".venv-tests"}


class Pins(ScriptTest):
    """What is pinned suits the oldest Python promised."""

    def test_what_is_installed_suits_every_python_promised(self):
        code = ("import sys\nfrom importlib.metadata import distributions\n"
                "from pip._vendor.packaging.specifiers import SpecifierSet\n"
                "for each in distributions():\n"
                "    needs = each.metadata['Requires-Python']\n"
                "    bad = [version for version in sys.argv[1:] if needs and version not in SpecifierSet(needs)]\n"
                "    print(each.metadata['Name'], each.version, *bad)\n")
        looked_at = 0
        for requirements, folder in REQUIREMENTS.items():
            stamp = ROOT / folder / "complete"
            if not stamp.exists() or not stamp.read_text().endswith((ROOT / requirements).read_text()):
                continue  # none, or made from other pins
            done = self.run_script(ROOT / folder / "bin" / "python", "-c", code, *PYTHONS.values(), code=0)
            installed = {normal(line.split()[0]): line.split()[1:] for line in done.stdout.splitlines()}
            for name, version in pins(requirements).items():
                self.assertEqual(installed[name], [version], f"{requirements}: {name} does not suit every Python of {PYTHONS}")
                looked_at += 1
        if not looked_at:
            self.skipTest("no Python environment")


if __name__ == "__main__":
    main()
