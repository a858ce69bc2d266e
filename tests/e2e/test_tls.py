"""TLS on both listeners: versions, ALPN, client certificates, certificates that change, bad files."""
import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request

import pytest
import yaml
from certificates import openssl
from conftest import BUILD, SLOW, TINY, ctl, free_port, running


def config(folder: pathlib.Path, **server):
    path = folder / "deltad.yaml"
    path.write_text(yaml.safe_dump({"base": str(TINY), "server": server}))
    return ["--config", path]


def trusting(pki, client=None, **options):
    context = ssl.create_default_context(cafile=pki / "ca.pem")
    if client:
        context.load_cert_chain(pki / f"{client}.pem", pki / f"{client}.key")
    for name, value in options.items():
        setattr(context, name, value)
    return context


def get(port: int, path: str, context):
    with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", timeout=30 * SLOW, context=context) as answer:
        return answer.status


def wait(condition, seconds=30):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def can_get(port, path, context):
    try:
        return get(port, path, context) == 200
    except OSError:
        return False


def connect(port, context):
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 30 * SLOW), server_hostname="127.0.0.1")


def ask(tls, path="/health"):
    tls.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return tls.recv(65536).split(b"\r\n")[0]


def subject(tls):
    return dict(pair[0] for pair in tls.getpeercert()["subject"])["commonName"]


def test_versions_alpn_and_certificates_that_change(pki, tmp_path):
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(pki / "one.pem", certificate)
    shutil.copy(pki / "one.key", key)
    arguments = config(tmp_path, tls={"certificate": "server.pem", "key": "server.key"})
    with running(arguments, tmp_path, ready=False) as server:
        context = trusting(pki)
        wait(lambda: can_get(server.port, "/ready", context))
        body = b'{"prompt": [1, 2, 3], "max_tokens": 4}'
        request = urllib.request.Request(f"https://127.0.0.1:{server.port}/v1/completions", body)
        with urllib.request.urlopen(request, timeout=60 * SLOW, context=context) as answer:
            assert answer.status == 200 and b'"choices"' in answer.read()
        # A body over many TLS records.
        request = urllib.request.Request(f"https://127.0.0.1:{server.port}/tokenize",
                                         b'{"prompt": "' + b"word " * 100000 + b'"}')
        with urllib.request.urlopen(request, timeout=60 * SLOW, context=context) as answer:
            assert answer.status == 200 and len(answer.read()) > 100000

        for version, good in (("tls1_1", False), ("tls1_2", True), ("tls1_3", True)):
            done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", f"-{version}",
                                   "-CAfile", pki / "ca.pem", "-verify_return_error", "-alpn", "h2,http/1.1"],
                                  input=b"", capture_output=True, timeout=60 * SLOW)
            assert (b"ALPN protocol: http/1.1" in done.stdout) == good, (version, done.stdout, done.stderr)
        only_h2 = trusting(pki)
        only_h2.set_alpn_protocols(["h2"])
        with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
            connect(server.port, only_h2)
        curl = subprocess.run(["curl", "-sS", "--cacert", pki / "ca.pem", f"https://127.0.0.1:{server.port}/health"],
                              capture_output=True, timeout=60 * SLOW)
        assert curl.returncode == 0 and b"ok" in curl.stdout, curl

        # In the clear: not answered, and nobody else is disturbed.
        with socket.create_connection(("127.0.0.1", server.port), 30 * SLOW) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")

        old = connect(server.port, context)
        assert subject(old) == "one" and ask(old) == b"HTTP/1.1 200 OK"
        # A broken pair changes nothing: the certificate alone does not fit the key.
        shutil.copy(pki / "two.pem", certificate)
        server.wait_for(lambda: "stay as they were" in server.log(), 30)
        with connect(server.port, context) as tls:
            assert subject(tls) == "one"
        shutil.copy(pki / "two.key", key)
        server.wait_for(lambda: "certificates read anew" in server.log(), 30)
        with connect(server.port, context) as tls:
            assert subject(tls) == "two"
        assert ask(old) == b"HTTP/1.1 200 OK"  # goes on with what it has
        old.close()


def test_client_certificates(pki, tmp_path):
    admin = free_port()
    pair = {"certificate": str(pki / "one.pem"), "key": str(pki / "one.key")}
    arguments = config(tmp_path, tls=pair,
                       admin={"listen": admin, "tls": {**pair, "client_ca": str(pki / "clients.pem")}})
    with running(arguments, tmp_path, ready=False) as server:
        wait(lambda: can_get(server.port, "/ready", trusting(pki)))
        assert get(admin, "/admin/v1/variants", trusting(pki, "client")) == 200
        for name in (None, "stranger"):
            assert not can_get(admin, "/health", trusting(pki, name))
            # TLS 1.2 says so in the handshake.
            with pytest.raises((ssl.SSLError, ConnectionError)):
                connect(admin, trusting(pki, name, maximum_version=ssl.TLSVersion.TLSv1_2))


def test_slow_handshakes_are_cut_off_and_stop_nobody(pki, tmp_path):
    arguments = config(tmp_path, header_seconds=1, idle_seconds=60,
                       tls={"certificate": str(pki / "one.pem"), "key": str(pki / "one.key")})
    with running(arguments, tmp_path, ready=False) as server:
        context = trusting(pki)
        wait(lambda: can_get(server.port, "/ready", context))
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        for one in slow:
            one.sendall(b"\x16\x03\x01\x02\x00")  # the head of a ClientHello that never comes
        assert get(server.port, "/health", context) == 200
        for one in slow:
            one.settimeout(30 * SLOW)
            assert one.recv(10) == b""
            one.close()


@pytest.mark.parametrize("files, message", [
    ({"certificate": "nothing.pem", "key": "one.key"}, "nothing.pem"),
    ({"certificate": "one.key", "key": "one.key"}, "expected certificates in PEM"),
    ({"certificate": "one.pem", "key": "one.pem"}, "expected a private key in PEM"),
    ({"certificate": "one.pem", "key": "two.key"}, "not the key of the certificate"),
    ({"certificate": "one.pem", "key": "locked.key"}, "without a password"),
    ({"certificate": "one.pem", "key": "one.key", "client_ca": "one.key"}, "authorities"),
    ({"certificate": "one.pem"}, "give both certificate and key"),
])
def test_bad_files_are_named(pki, tmp_path, files, message):
    openssl("ec", "-in", pki / "one.key", "-aes256", "-passout", "pass:x", "-out", pki / "locked.key")
    arguments = config(tmp_path, tls={name: str(pki / file) for name, file in files.items()})
    for more in ([], ["--check-config"]):
        done = subprocess.run([BUILD / "deltad", *arguments, *more], capture_output=True, text=True, timeout=60 * SLOW,
                              stdin=subprocess.DEVNULL)
        assert done.returncode in (1, 2) and message in done.stderr, done.stderr
        assert "PRIVATE" not in done.stderr


def test_deltactl_over_tls(pki, tmp_path):
    tls = {"certificate": str(pki / "one.pem"), "key": str(pki / "one.key")}
    port = free_port()
    arguments = config(tmp_path, tls=tls, admin={"listen": port, "tls": {**tls, "client_ca": str(pki / "clients.pem")}})
    believed = ("--cacert", pki / "ca.pem")
    shown = ("--cert", pki / "client.pem", "--key", pki / "client.key")
    with running(arguments, tmp_path, ready=False) as server:
        url = f"https://127.0.0.1:{server.port}"
        wait(lambda: ctl("health", "--server", url, *believed, check=False).returncode == 0)
        assert ctl("health", "--server", url, "--insecure").stdout == "ready\n"
        assert ctl("health", "--server", f"https://localhost:{server.port}", *believed).stdout == "ready\n"

        def refused(*arguments):
            result = ctl(*arguments, check=False)
            assert result.returncode != 0 and not result.stdout, result
            return result.stderr

        assert "certificate is not believed" in refused("health", "--server", url)  # by the system's authorities
        assert "certificate is not believed" in refused("health", "--server", url, "--cacert", pki / "others.pem")
        assert "none.pem" in refused("health", "--server", url, "--cacert", tmp_path / "none.pem")
        assert "certificate required" in refused("health", "--server", f"https://127.0.0.1:{port}", *believed)
        assert "without an answer" in refused("health", "--server", f"http://127.0.0.1:{server.port}")
        assert "bench-serve" in refused("bench-serve", "--url", url, "--rate", "1", "--requests", "1", "--models", "llama")

        admin = f"https://127.0.0.1:{port}"
        assert json.loads(ctl("variants", "list", "--server", admin, *believed, *shown, "--json").stdout)["data"] == []
        stranger = ("--cert", pki / "stranger.pem", "--key", pki / "stranger.key")
        assert "127.0.0.1" in refused("variants", "list", "--server", admin, *believed, *stranger)
        assert "client.key: " in refused("variants", "list", "--server", admin, *believed, "--cert", pki / "client.key", "--key", pki / "client.pem")

        openssl("ec", "-in", pki / "client.key", "-aes256", "-passout", "pass:x", "-out", tmp_path / "locked.key")
        said = refused("variants", "list", "--server", admin, *believed, "--cert", pki / "client.pem", "--key", tmp_path / "locked.key")
        assert "locked.key: " in said and "a private key in PEM without a password was expected" in said and "pass phrase" not in said, said

        questions = tmp_path / "questions.jsonl"
        questions.write_text('{"prompt": "a", "answer": "b"}\n')
        done = ctl("eval", "--url", url, *believed, "--model", "llama", "--questions", questions, "--max-tokens", "2", "--json")
        assert json.loads(done.stdout)
