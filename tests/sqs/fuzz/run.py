"""Fuzz one part of the endpoint, or the mapping of ingest, with atheris (https://github.com/google/atheris).

It is no dependency of ours:

    pip install atheris
    python tests/sqs/fuzz/run.py http|query|json|signature|mapping DIRECTORY [-max_total_time=900 …]

The directory keeps the inputs that reached something new, and a crash's input; it begins with the seeds. What follows
it goes to libFuzzer. An input that found something is added to ``fuzz_seeds.py`` with a name, and the tests try it.
"""

import sys
from pathlib import Path

import atheris

HERE = Path(__file__).parent


def main() -> None:
    name, directory, *options = sys.argv[1:]
    sys.path[:0] = [str(HERE)]
    with atheris.instrument_imports(include=["inturn.sqs", "inturn.serving.http", "inturn.ingest"]):
        from fuzz_targets import TARGETS
    from fuzz_seeds import SEEDS

    corpus = Path(directory, name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name].values()):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={directory}/{name}-", *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
