"""tests/tree/count.py: what it counts, and the goals that its table is for."""

import textwrap

from tests.tree import count
from tests.tree.test_imports import ROOT

SOURCE = textwrap.dedent('''
    class Agent(wiring.Component):
        i: In(stream.Signature(8))
        o: Out(stream.Signature(8))

        def __init__(self):
            self._depth = 4
            super().__init__({"a": In(1), "b": Out(2).array(3), "c": 4})

        def elaborate(self, platform):
            m = Module()
            self._late = Signal()
            self._helper(m)
            return m

        def _helper(self, m):
            self._depth = 5
            self.other.eq(1)

    class Plain:
        def run(self, m):
            self.x = 1
''')


def test_what_is_counted(tmp_path):
    file = tmp_path / "agent.py"
    file.write_text(SOURCE)
    component, = count.components(file)
    assert component == count.Component("Agent", lines=8, helpers=1, ports=4, late={"_late"})


def test_share():
    assert count.share([3, 1, 2, 10], 0.5) == 2
    assert count.share(range(1, 101), 0.9) == 90
    assert count.share([7], 0.1) == 7


def test_pronouns_are_counted(tmp_path):
    (tmp_path / "bus.py").write_text('"""It moves a byte."""\nclass Bus:\n    """Their bus."""\n')
    assert count.pronouns(tmp_path) == (2, 6)


def test_texts_name_their_subjects():
    for name in ("model", "host", "boards", "manager", "cli", "sim", "hdl/dxpu/endpoint",
                 "hdl/dxpu/ethernet"):
        found, words = count.pronouns(ROOT / name)
        assert found <= 0.05 * words, f"{name}: {found} pronouns in {words} words of docstrings"


def test_folders_of_fabric_and_switch_are_rooms_not_streets():
    for package in ("fabric", "switch"):
        for folder in (ROOT / "hdl/dxpu" / package).rglob("*"):
            if folder.is_dir():
                assert len(list(folder.glob("*.py"))) <= 10, folder
    benches = ROOT / "sim/dxpu_sim"
    assert len([folder for folder in benches.iterdir() if (folder / "__init__.py").exists()]) <= 11
    assert [file.name for file in benches.glob("*.py")] == ["__init__.py"]


def test_the_table_is_printed(capsys):
    count.main([])
    table = capsys.readouterr().out
    assert "| circles of imports | 0 |" in table
    assert "| imports that the table forbids | 0 |" in table
