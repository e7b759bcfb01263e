import re
from pathlib import Path

import sbi_colt.sampling


def test_one_room_reads_what_is_private_to_sbi():
    folder = Path(sbi_colt.sampling.__file__).parent
    private = re.compile(
        r"^\s*(from|import) sbi[. ]|posterior\._\w+|compose_enabled|slice_np", re.M
    )
    found = {file.name for file in folder.glob("*.py") if private.search(_code(file))}
    assert found == {"sbi_internals.py"}


def _code(file: Path) -> str:
    return file.read_text(encoding="utf-8")
