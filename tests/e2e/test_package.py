"""The Debian package: built by CPack, with the programs, their manual pages, the config as a conffile, the unit, and its libraries as
dependencies; completion as bash does it."""
import subprocess

import pytest
from conftest import BUILD, ROOT


def test_contents_and_dependencies(tmp_path):
    subprocess.run(["cpack", "--config", str(BUILD / "CPackConfig.cmake"), "-G", "DEB", "-B", str(tmp_path)], check=True,
                   capture_output=True)
    (package,) = tmp_path.glob("*.deb")
    contents = subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True, text=True).stdout
    for path in ["usr/bin/deltad", "usr/bin/deltactl", "etc/deltad/deltad.yaml", "usr/share/doc/deltad/docs/sizing.md",
                 "usr/lib/systemd/system/deltad.service", "usr/share/man/man1/deltactl.1", "usr/share/man/man5/deltad.yaml.5",
                 "usr/share/man/man8/deltad.8", "usr/share/bash-completion/completions/deltactl"]:
        assert f" ./{path}\n" in contents
    about = subprocess.run(["dpkg-deb", "-I", package], check=True, capture_output=True, text=True).stdout
    assert "Package: deltad" in about and "libc6 (>=" in about
    conffiles = subprocess.run(["dpkg-deb", "-I", package, "conffiles"], check=True, capture_output=True, text=True).stdout
    assert conffiles.split() == ["/etc/deltad/deltad.yaml"]
    scripts = tmp_path / "scripts"
    subprocess.run(["dpkg-deb", "-e", package, scripts], check=True)
    for name in ("postinst", "prerm", "postrm"):
        assert (scripts / name).stat().st_mode & 0o111 == 0o111
        subprocess.run(["sh", "-n", scripts / name], check=True)


SYSTEMCTL = """#!/bin/sh
echo "$@" >> {log}
# A start of the unit lasts until it is ready, which an upgrade must not wait for.
case "$1" in try-restart|restart|start) exec sleep 1000;; esac
exit 1
"""


@pytest.mark.parametrize("script, arguments, asked", [
    ("postinst", ["configure", "0.1"], ["daemon-reload", "--no-block try-restart deltad.service"]),
    ("postinst", ["configure", ""], ["daemon-reload"]),
    ("prerm", ["remove"], ["disable --now deltad.service"]),
    ("prerm", ["upgrade", "0.2"], []),
    ("postrm", ["remove"], ["daemon-reload"]),
])
def test_scripts_neither_wait_for_the_service_nor_fail_with_it(tmp_path, script, arguments, asked):
    log, systemctl, copy = tmp_path / "log", tmp_path / "systemctl", tmp_path / script
    log.touch()
    systemctl.write_text(SYSTEMCTL.format(log=log))
    systemctl.chmod(0o755)
    copy.write_text((ROOT / "cmake" / "package" / script).read_text().replace("/run/systemd/system", str(tmp_path)))
    subprocess.run(["sh", copy, *arguments], check=True, timeout=60, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert log.read_text().splitlines() == asked


@pytest.mark.parametrize("page, words", [
    ("deltad.8", ["--check-config", "deltad.yaml(5)"]),
    ("deltad.yaml.5", ["keys_file", "drain_seconds"]),
    ("deltactl.1", ["deltactl variants list", "--calibrate", "Exit codes"]),
])
def test_manual_pages(page, words):
    shown = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-P-cbou", BUILD / "manuals" / page], capture_output=True, text=True, check=True)
    assert not shown.stderr, shown.stderr
    for word in words:
        assert word in shown.stdout


def test_the_config_page_is_the_config():
    """Every line of the file that describes the keys, unchanged."""
    shown = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-P-cbou", "-rLL=400n", BUILD / "manuals" / "deltad.yaml.5"],
                           capture_output=True, text=True, check=True).stdout
    squeezed = {" ".join(line.split()) for line in shown.splitlines()}
    for line in (ROOT / "config" / "deltad.yaml").read_text().splitlines():
        assert " ".join(line.split()) in squeezed, line


@pytest.mark.parametrize("line, expected", [
    (["deltactl", "ver"], {"verify"}),
    (["deltactl", "variants", "p"], {"pin", "prefetch"}),
    (["deltactl", "health", "--l"], {"--live"}),
    (["deltactl", "variants", "list", "--server", "http://x", "--js"], {"--json"}),
    (["deltactl", "inspect", "f"], set()),  # bash completes file names itself
])
def test_completion(line, expected):
    script = BUILD / "manuals" / "deltactl.bash"
    words = " ".join(f"'{word}'" for word in line)
    done = subprocess.run(["bash", "-uc", f"source '{script}'; COMP_WORDS=({words}); COMP_CWORD={len(line) - 1}; _deltactl; printf '%s\\n' \"${{COMPREPLY[@]:-}}\""],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == expected
