"""Run the code of a document top to bottom, as a reader pastes it; the standard library is all this needs.

    python paste.py README.md [NUMBER OF BLOCKS]

Python blocks share one namespace, `__main__`. The output of a block with prompts and of a console block is compared,
with ``…`` for anything; a console block runs the `inturn` beside this interpreter. If anything differs, it is printed
and the exit code is 1.
"""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import __main__

FENCED = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_console(text: str) -> str | None:
    """Run the commands of a block; return what differs, if anything."""
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = block.partition("\n")
        assert command.startswith("inturn "), f"only inturn is run here, not {command!r}"
        path = f"{Path(sys.executable).parent}"
        ran = subprocess.run(
            ["/bin/sh", "-c", f'PATH="{path}:$PATH"; {command}'],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        printed = "\n".join(line.rstrip() for line in (ran.stdout + ran.stderr).strip().splitlines())
        pattern = re.escape(expected.strip()).replace("…", ".*?")
        if not re.fullmatch(pattern, printed, re.DOTALL):
            return f"$ {command}\nExpected:\n{expected.strip()}\nPrinted:\n{printed}"
    return None


def run_prompts(text: str, name: str, number: int) -> str | None:
    """Run the lines behind prompts; return what differs, if anything."""
    test = doctest.DocTestParser().get_doctest(text, vars(__main__), f"{name}, block {number}", name, 0)
    differs: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=differs.append, clear_globs=False)
    vars(__main__).update(test.globs)
    return "".join(differs) or None


def main(document: Path, most: int | None) -> int:
    """Run the first blocks of a document; return the exit code."""
    blocks = FENCED.findall(document.read_text(encoding="utf-8"))[:most]
    for number, (language, text) in enumerate(blocks, 1):
        if language == "console":
            differs = run_console(text)
        elif text.lstrip().startswith(">>>"):
            differs = run_prompts(text, document.name, number)
        else:
            exec(compile(text, f"{document.name}, block {number}", "exec"), vars(__main__))  # noqa: S102 - pasted
            differs = None
        if differs:
            print(differs)
            return 1
    print(f"{document.name}: {len(blocks)} blocks ran as they are printed")
    return 0 if blocks else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
