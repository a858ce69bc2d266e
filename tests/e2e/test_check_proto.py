"""scripts/check_proto on small trees: what is added passes, what would break a client does not, with --update neither."""
import subprocess
import sys

import pytest

from conftest import ROOT

GOOD = """// What it is.
syntax = "proto3";
package deltad.v1;
service Things {
  rpc Get(GetRequest) returns (GetResponse);
}
message GetRequest {
  string name = 1;
  oneof first { int32 a = 2; int32 b = 3; }
  oneof second { int32 c = 4; }
  optional bool d = 5;
}
message GetResponse {
  Kind kind = 1;
}
enum Kind {
  KIND_UNSPECIFIED = 0;
  KIND_ONE = 1;
}
"""


class Tree:
    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "deltad" / "v1" / "things.proto"
        self.file.parent.mkdir(parents=True)
        self.baseline = folder / "baseline.txt"

    def check(self, text, *options):
        """(exit code, output)"""
        self.file.write_text(text)
        done = subprocess.run([sys.executable, ROOT / "scripts" / "check_proto", *options, self.folder], capture_output=True, text=True, timeout=60)
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path)
    assert tree.check(GOOD, "--update") == (0, "") and tree.check(GOOD) == (0, "")
    return tree


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize("text", [
    changed("name = 1;", "name = 1; string more = 6;"),
    changed("KIND_ONE = 1;", "KIND_ONE = 1; KIND_TWO = 2;"),
    changed("service Things {", "service Things { rpc Put(GetRequest) returns (PutResponse);") + "message PutResponse {}\n",
])
def test_additions_are_taken_with_update(tree, text):
    code, said = tree.check(text)
    assert code == 1 and all(line.startswith("not in the baseline yet") for line in said.splitlines())
    before = tree.baseline.read_text().splitlines()
    assert tree.check(text, "--update") == (0, "") and tree.check(text) == (0, "")
    assert set(before) < set(tree.baseline.read_text().splitlines())


@pytest.mark.parametrize("text, gone", [
    (changed("name = 1", "name = 6"), "field deltad.v1.GetRequest 1 name"),
    (changed("string name = 1", "bytes name = 1"), "field deltad.v1.GetRequest 1 name"),
    (changed("name = 1", "title = 1"), "field deltad.v1.GetRequest 1 name"),
    (changed("string name = 1", "repeated string name = 1"), "field deltad.v1.GetRequest 1 name"),
    (changed("string name = 1;", ""), "field deltad.v1.GetRequest 1 name"),
    (changed("string name = 1;", "reserved 1;"), "field deltad.v1.GetRequest 1 name"),  # its name could come again
    (changed("string name = 1;", 'reserved "name";'), "field deltad.v1.GetRequest 1 name"),
    (changed("int32 b = 3; }\n  oneof second { int32 c = 4; }", "}\n  oneof second { int32 c = 4; int32 b = 3; }"),
     "field deltad.v1.GetRequest 3 b"),
    (changed("int32 a = 2; int32 b = 3; }", "int32 b = 3; } int32 a = 2;"), "field deltad.v1.GetRequest 2 a"),
    (changed("optional bool d", "bool d"), "field deltad.v1.GetRequest 5 d"),
    (changed("KIND_ONE = 1", "KIND_ONE = 2"), "value deltad.v1.Kind 1 KIND_ONE"),
    (changed("KIND_ONE = 1;", "reserved 1;"), "value deltad.v1.Kind 1 KIND_ONE"),
    (changed("Get(GetRequest) returns (GetResponse)", "Get(GetRequest) returns (stream GetResponse)"), "rpc deltad.v1.Things Get"),
    (changed("Get(GetRequest) returns (GetResponse)", "Get(stream GetRequest) returns (GetResponse)"), "rpc deltad.v1.Things Get"),
])
def test_what_breaks_clients_is_refused_also_with_update(tree, text, gone):
    before = tree.baseline.read_text()
    for options in ([], ["--update"]):
        code, said = tree.check(text, *options)
        assert code == 1 and [line for line in said.splitlines() if line.startswith("breaks clients") and f": {gone} " in line + " "], said
    assert tree.baseline.read_text() == before


def test_what_goes_stays_reserved(tree):
    gone = changed("string name = 1;", 'reserved 1; reserved "name";').replace("KIND_ONE = 1;", 'reserved 1; reserved "KIND_ONE";')
    assert tree.check(gone) == (0, "")
    assert tree.check(gone, "--update") == (0, "")
    code, said = tree.check(gone.replace('reserved 1; reserved "name";', "int32 other = 1;"), "--update")
    assert code == 1 and "field deltad.v1.GetRequest 1 name" in said


def test_style(tree):
    for text, said in ((GOOD.replace("// What it is.\n", ""), "begin the file"), (changed(" name = 1", " Name = 1"), "like_this"),
                       (changed("KIND_ONE", "ONE"), "begins with KIND_")):
        code, output = tree.check(text)
        assert code == 1 and said in output
