"""Certificates for the tests of TLS, made with openssl."""
import pathlib
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def make_authority(folder: pathlib.Path, name: str):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem")


def make_certificate(folder: pathlib.Path, authority: str, name: str):
    extensions = folder / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")
    openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / f"{authority}.pem",
            "-CAkey", folder / f"{authority}.key", "-CAcreateserial", "-days", "2",
            "-extfile", extensions, "-out", folder / f"{name}.pem")


def make_all(folder: pathlib.Path):
    """NAME.pem and NAME.key: servers one and two of the authority ca, client of clients, stranger of others."""
    for authority in ("ca", "clients", "others"):
        make_authority(folder, authority)
    for authority, name in (("ca", "one"), ("ca", "two"), ("clients", "client"), ("others", "stranger")):
        make_certificate(folder, authority, name)
