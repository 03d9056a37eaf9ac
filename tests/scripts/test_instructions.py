"""common/ptx/wgmma_instructions.h is what its script writes, and each text names the registers that it needs."""

import re

from support import ROOT, SCRIPTS, ScriptTest, main

from fa_tools import wgmma_instructions

HEADER = ROOT / "common" / "ptx" / "wgmma_instructions.h"


class WgmmaInstructions(ScriptTest):
    def test_up_to_date(self):
        done = self.run_script(SCRIPTS / "fa", "wgmma", "--check")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_operand_is_named_once(self):
        texts = re.findall(r"asm volatile\((.*?)\);\n  \}", HEADER.read_text(encoding="utf-8"), re.S)
        self.assertEqual(len(texts), 2 * len(wgmma_instructions.COLUMNS))
        for text in texts:
            code, outputs, inputs = re.split(r"\n        : ", text)
            columns = int(re.search(r"m64n(\d+)k16", code)[1])
            self.assertEqual(outputs.split(), [p for i in range(columns // 2)
                                               for p in [f'"+f"(d[{i}])' + ("," if i + 1 < columns // 2 else "")]])
            operands = columns // 2 + len(re.findall(r'"\w"\(', inputs))
            self.assertEqual({int(n) for n in re.findall(r"%(\d+)", code)}, set(range(operands)))

    def test_stale(self):
        root = self.checkout()
        (root / "common" / "ptx").mkdir(parents=True)
        copy = root / "common" / "ptx" / HEADER.name
        copy.write_text(HEADER.read_text(encoding="utf-8").replace("%7,", "%8,", 1), encoding="utf-8")
        script = root / "scripts" / "fa", "wgmma"
        done = self.run_script(script, "--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("is out of date", done.stderr)
        self.assertEqual(self.run_script(script).returncode, 0)
        self.assertEqual(copy.read_bytes(), HEADER.read_bytes())


if __name__ == "__main__":
    main()
