"""TLS of the gRPC port as clients other than gRPC's own see it: nghttp and openssl. Which protocol, which versions."""
import re
import shutil
import subprocess

import pytest
import yaml

from conftest import SLOW, TINY, free_port, running


@pytest.fixture(scope="module")
def port(pki, tmp_path_factory):
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    config = folder / "deltad.yaml"
    config.write_text(yaml.safe_dump({"base": str(TINY), "server": {"grpc": {"listen": f"127.0.0.1:{port}"},
                                                                    "tls": {"certificate": str(pki / "one.pem"), "key": str(pki / "one.key")}}}))
    with running(["--config", config], folder, ready=False) as server:
        server.wait_for(lambda: "ready after" in server.log(), 60, "the model to be loaded")
        yield port


def s_client(port, pki, *options):
    """The handshake's report, and what went wrong."""
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", pki / "ca.pem", "-verify_return_error", *options],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW)
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


@pytest.mark.parametrize("version", ["tls1_2", "tls1_3"])
def test_h2_is_spoken(port, pki, version):
    report, _ = s_client(port, pki, f"-{version}", "-alpn", "http/1.1,h2")
    assert "ALPN protocol: h2" in report and "Verification: OK" in report, report


@pytest.mark.parametrize("version", ["tls1", "tls1_1"])
def test_old_versions_are_refused(port, pki, version):
    # At security level 0 the client itself would take them: it has sent its hello.
    report, wrong = s_client(port, pki, f"-{version}", "-cipher", "DEFAULT@SECLEVEL=0", "-alpn", "h2")
    assert "Cipher is (NONE)" in report and "ALPN protocol" not in report, report
    assert int(re.search(r"bytes and written (\d+) bytes", report)[1]) > 50 and "error" in wrong, (report, wrong)


def test_nghttp_is_answered(port, pki):
    assert shutil.which("nghttp"), "no nghttp: docker/install-deps.sh installs nghttp2-client"
    done = subprocess.run(["nghttp", "-nv", f"https://127.0.0.1:{port}/"], capture_output=True, text=True, timeout=60 * SLOW)
    assert done.returncode == 0 and "The negotiated protocol: h2" in done.stdout, done
    assert "content-type: application/grpc" in done.stdout and "grpc-status:" in done.stdout
