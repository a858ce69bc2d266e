"""The Debian package: built by CPack, with the programs, the config as a conffile and its libraries as dependencies."""
import shutil
import subprocess

import pytest
from conftest import BUILD


@pytest.mark.skipif(shutil.which("dpkg-shlibdeps") is None, reason="needs dpkg-dev")
def test_contents_and_dependencies(tmp_path):
    subprocess.run(["cpack", "--config", str(BUILD / "CPackConfig.cmake"), "-G", "DEB", "-B", str(tmp_path)], check=True,
                   capture_output=True)
    (package,) = tmp_path.glob("*.deb")
    contents = subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True, text=True).stdout
    for path in ["usr/bin/deltad", "usr/bin/deltactl", "etc/deltad/deltad.yaml", "usr/share/doc/deltad/docs/sizing.md"]:
        assert f" ./{path}\n" in contents
    about = subprocess.run(["dpkg-deb", "-I", package], check=True, capture_output=True, text=True).stdout
    assert "Package: deltad" in about and "libc6 (>=" in about
    conffiles = subprocess.run(["dpkg-deb", "-I", package, "conffiles"], check=True, capture_output=True, text=True).stdout
    assert conffiles.split() == ["/etc/deltad/deltad.yaml"]
