"""What the wheel says of itself is true: its licence, its links, its extras, its files."""

import email
import re
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path
from subprocess import run

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IN_REPOSITORY = PROJECT["urls"]["Source"] + "/blob/main/"


@pytest.fixture(scope="module")
def archive(wheel: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel)


@pytest.fixture(scope="module")
def metadata(archive: zipfile.ZipFile) -> Message:
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def test_the_wheel_contains_the_licence(archive: zipfile.ZipFile, metadata: Message) -> None:
    (name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
    assert archive.read(name) == (ROOT / "LICENSE").read_bytes()
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_wheel_contains_exactly_the_package_files(archive: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    assert {name for name in archive.namelist() if ".dist-info/" not in name} == expected
    assert {"inturn/py.typed", "inturn/store/sqlite/queries.sql", "inturn/demo/page.html.j2"} < expected


def test_every_link_of_the_pypi_page_is_valid(metadata: Message) -> None:
    text = metadata.get_payload()
    assert isinstance(text, str)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    for link in links:
        assert link.startswith("https://"), f"{link} leads nowhere from PyPI"
        if link.startswith(IN_REPOSITORY):
            file, _, heading = link.removeprefix(IN_REPOSITORY).partition("#")
            assert (ROOT / file).is_file(), f"there is no {file}"
            headings = re.findall(r"^#+ (.*)$", (ROOT / file).read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not heading or heading in slugs


def test_the_base_install_requires_only_msgspec(metadata: Message) -> None:
    base = [requirement for requirement in metadata.get_all("Requires-Dist") or [] if "extra ==" not in requirement]
    assert [re.split(r"\W", requirement)[0] for requirement in base] == ["msgspec"]


def test_python_classifiers_start_at_requires_python(metadata: Message) -> None:
    named = [
        classifier.rsplit(" ", 1)[1]
        for classifier in metadata.get_all("Classifier") or []
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", classifier)
    ]
    assert metadata["Requires-Python"] == f">={named[0]}"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


def test_a_star_import_does_not_shadow_open() -> None:
    namespace: dict[str, object] = {}
    exec("from inturn import *", namespace)  # noqa: S102
    assert "Pipeline" in namespace
    assert "open" not in namespace


def test_importing_inturn_imports_only_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import inturn; "
        "print(*{name.split('.')[0] for name in sys.modules.keys() - before})"
    )
    ran = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) - sys.stdlib_module_names == {"inturn"}
