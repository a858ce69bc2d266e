"""A short form of bench/serving/soak.py: requests of all kinds, loads, evictions, reloads and clients that leave, and the memory stays as it is."""
import subprocess
import sys

import pytest

from conftest import BUILD, GOLDEN, ROOT, SLOW, TINY

VARIANTS = [GOLDEN / "variants" / "llama" / f"llama-{name}.delta.safetensors" for name in ("row-1", "matrix-1", "matrix-2")]


@pytest.mark.skipif(SLOW > 1, reason="what sanitizers add to the memory is not the server's")
def test_memory_stays_as_it_is():
    result = subprocess.run([sys.executable, str(ROOT / "bench" / "serving" / "soak.py"), str(TINY), *map(str, VARIANTS), "--requests", "12000",
                             "--rounds", "8", "--slack", "8", "--build", str(BUILD)], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
