"""What a module may run is found by reading sources, and counts by its meaning."""

import textwrap
import uuid

import pytest

from dxpu_tools import closure
from dxpu_tools.closure import Sources


class Tree:
    """Sources that a test writes."""

    def __init__(self, root):
        self._root = root
        self.write("pack/__init__.py", "from .one import One\nfrom .two import *\n")
        self.write("pack/one.py", "class One: pass\n")
        self.write("pack/two.py", "from .three import Three\n")
        self.write("pack/three.py", "class Three: pass\n")
        self.write("pack/rare.py", "import json\n")

    def write(self, name, text):
        file = self._root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))

    def reached(self, *names):
        return Sources(self._root).reached(*names)

    def digest(self, name="user", **options):
        return Sources(self._root).digest(name, **options)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.mark.parametrize("text, found", [
    ("import json", set()),
    ("import pack.one", {"pack", "pack.one"}),
    ("from pack import One", {"pack", "pack.one"}),
    ("from pack.one import One", {"pack", "pack.one"}),
    ("from pack import rare", {"pack", "pack.rare"}),
    # What a package takes whole from a module may come from any such module.
    ("from pack import Three", {"pack", "pack.one", "pack.two", "pack.three"}),
    ("from pack import *", {"pack", "pack.one", "pack.two", "pack.three"}),
    ("import pack", {"pack", "pack.one", "pack.two", "pack.three"}),
    ("def lazily():\n    from pack import rare", {"pack", "pack.rare"}),
    ("if TYPE_CHECKING:\n    from pack import rare", {"pack", "pack.rare"}),
    ("BENCH = 'pack.rare'", {"pack", "pack.rare"}),
    ("BENCH = f'pack.{name}'",
     {"pack", "pack.one", "pack.two", "pack.three", "pack.rare"}),
    ("TEXT = 'pack.rare is a module'", set()),
])
def test_what_is_reached(tree, text, found):
    tree.write("user.py", text)
    assert tree.reached("user") == {"user"} | found


def test_relative_imports(tree):
    tree.write("pack/inner/__init__.py", "")
    tree.write("pack/inner/user.py", "from . import near\nfrom ..rare import x\nfrom .. import one")
    tree.write("pack/inner/near.py", "")
    assert tree.reached("pack.inner.user") == {
        "pack", "pack.inner", "pack.inner.user", "pack.inner.near", "pack.rare", "pack.one"}


def test_modules_that_use_each_other(tree):
    tree.write("pack/one.py", "from .three import Three")
    tree.write("pack/three.py", "from .one import One")
    assert tree.reached("pack.one") == {"pack", "pack.one", "pack.three"}


BLOCK = '''\
    """A block."""
    from pack import One

    SIZE = 4

    class Block(One):
        """It counts."""
        def __init__(self):
            self.size = SIZE

        def elaborate(self, platform):
            m = Module()
            self._more(m)
            return m

        def _more(self, m):
            m.d.sync += self.count.eq(0)
'''


@pytest.mark.parametrize("old, new, program, hardware", [
    ("A block.", "Another text.", False, False),
    ('        """It counts."""\n', "", False, False),
    ("SIZE = 4", "SIZE  =  4  # why", False, False),
    ("SIZE = 4", "SIZE = 5", True, True),
    ("self.size = SIZE", "self.size = 0", True, True),
    ("count.eq(0)", "count.eq(1)", False, True),
    ("self._more(m)", "pass", False, True),
])
def test_changes_that_count(tree, old, new, program, hardware):
    tree.write("user.py", BLOCK)
    before = [tree.digest(hardware=kind) for kind in (False, True)]
    assert old in BLOCK and before[0] != before[1]
    tree.write("user.py", BLOCK.replace(old, new))
    after = [tree.digest(hardware=kind) for kind in (False, True)]
    assert [a != b for a, b in zip(before, after, strict=True)] == [program, hardware]


def test_changes_elsewhere(tree):
    tree.write("user.py", BLOCK)
    before = tree.digest()
    tree.write("pack/rare.py", "import os\n")
    assert tree.digest() == before
    tree.write("pack/one.py", "class One: x = 1\n")
    changed = tree.digest()
    assert changed != before
    tree.write("pack/table.json", "{}")
    assert tree.digest() != changed


def test_sources_are_read_again_after_a_change_only(tree, monkeypatch):
    tree.write("user.py", BLOCK)
    tree.write("pack/one.py", f"class One: pass  # {uuid.uuid4()}")
    before = [tree.digest(hardware=kind) for kind in (False, True)]
    with monkeypatch.context() as patch:
        patch.setattr(closure, "_tree", None)
        assert [tree.digest(hardware=kind) for kind in (False, True)] == before
        for name, text in (("pack/rare.py", "import os\n"), ("pack/table.json", "{}")):
            tree.write(name, text)
            with pytest.raises(TypeError):
                tree.digest()
    assert tree.digest() != before[1]


def test_names_of_files(tree, tmp_path):
    tree.write("pack/inner/__init__.py", "")
    tree.write("pack/bare/a.py", "")
    sources = Sources(tmp_path / "pack")
    assert sources.name_of(tmp_path / "pack" / "one.py") == "pack.one"
    assert sources.name_of(tmp_path / "pack" / "inner" / "__init__.py") == "pack.inner"
    assert Sources(tmp_path / "pack" / "bare").name_of(tmp_path / "pack" / "bare" / "a.py") == "a"
    (tmp_path / "other.txt").write_text("")
    assert sources.name_of(tmp_path / "other.txt") is None
