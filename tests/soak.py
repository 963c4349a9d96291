"""Repeat the tests that draw at random, each time with new seeds, for as long as told.

    python tests/soak.py MINUTES [PYTEST'S ARGUMENTS …]

These are the tests marked `soak`: lives that end at random, storms, races, machines compared with their oracle. Each
round has a seed of its own, for those tests and for hypothesis. The first round that fails ends it; the command that is
printed then is that round again.
"""

import secrets
import subprocess
import sys
import time


def main(minutes: float, arguments: list[str]) -> int:
    """Run rounds until the time is over or one fails; return the exit code."""
    end = time.monotonic() + minutes * 60
    rounds = 0
    while time.monotonic() < end:
        seed = secrets.randbelow(2**31)
        print(f"round {rounds + 1}, seed {seed}", flush=True)
        round_ = [
            "-m",
            "soak",
            "--hypothesis-profile=soak",
            f"--soak-seed={seed}",
            "--soak-times=4",
            f"--hypothesis-seed={seed}",
        ]
        command = [sys.executable, "-m", "pytest", "-x", "-rP", *round_]  # with what passing tests print: their counts
        failed = subprocess.run([*command, *arguments], check=False, timeout=7200).returncode
        if failed:
            print(f"round {rounds + 1} failed; again with: pytest {' '.join(round_)}")
            return failed
        rounds += 1
    print(f"{rounds} rounds passed in {minutes:g} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
