"""``dxpu model paper``."""

import json

from dxpu_cli.main import main


def test_each_figure_has_its_line(capsys):
    assert main(["model", "paper"]) == 0
    text = capsys.readouterr().out
    line, simulated = (line for line in text.splitlines()
                       if "ResNet-50 training, batch 32" in line)
    assert line.split()[-7:] == ["%", "85.2", "87.4", "+2.2", "90.9", "held", "out"]
    assert simulated.split()[-4:] == ["85.2", "90.9", "99.3", "below"]
    assert "11 held-out shares of speed: mean error 1.02 points, at most 2.22\n" in text
    assert "no blind prediction" in text


def test_json_has_the_rows_of_a_kind(capsys):
    assert main(["model", "paper", "--json", "--kind", "fitted"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 10 and {row["kind"] for row in rows} == {"fitted"}
    assert all(abs(row["error"]) < 1e-6 for row in rows)
