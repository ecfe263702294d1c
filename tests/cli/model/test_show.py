"""``dxpu model show``."""

import json
from pathlib import Path

import pytest

from dxpu_cli.main import main

SAMPLES = Path("tests/model/performance/samples")

SHOWN = """\
kineto.json: PyTorch profiler (Kineto)

kernels              4, 32.800 us together
  mean, median       8.200 us, 1.000 us
  of 10 us and less  75.0% of the number, 14.6% of the time
span                 51.000 us
GPUs, streams        1, 2
a kernel runs for    64.3% of the span
copies, host to GPU  1, 65.536 kB, 4.000 us
copies, GPU to host  1, 4.096 kB, 2.000 us
  beside no kernel   2 between host and GPU; 6.000 us of all of them
memsets              1
launches             6
synchronisations     1, 24.000 us of waiting
queue at a launch    2.3 operations in the mean, none at 14.3%
"""


def test_a_trace(capsys):
    assert main(["model", "show", str(SAMPLES / "kineto.json")]) == 0
    assert capsys.readouterr() == (SHOWN, "")


def test_durations_have_no_timeline(capsys):
    assert main(["model", "show", str(SAMPLES / "cuda_gpu_kern_sum.csv")]) == 0
    text = capsys.readouterr().out
    assert "kernels              4, 32.800 us together\n" in text and "span" not in text
    assert "\nnote: Each kernel counts with the mean time of its name" in text


def test_a_part_as_json(capsys):
    assert main(["model", "show", str(SAMPLES / "kineto.json"), "--device", "0", "--begin", "0.04",
                 "--end", "0.0475", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["kernels"], shown["kernel_ns"], shown["median_ns"]) == (3, 4800, 1000)
    assert shown["timeline"]["copies"] == {} and shown["timeline"]["launches"] == 3
    assert shown["timeline"]["span_ns"] == 39_000  # from the launch of the first kernel


@pytest.mark.parametrize("options, message", [
    (["no.json"], "no.json: no such file or directory"),
    (["{}", "--device", "1"], "{}: no GPU 1 is in the trace; there are: 0"),
    (["{}", "--begin", "1"], "{}: no kernel is in the chosen part; the trace lasts 0.051 ms"),
    (["{}", "--begin", "2", "--end", "1"],
     "--end must be a number from 2.0 to 316000000000, not '1'"),
    (["{}", "--device", "first"], "--device must be a whole number from 0 to 1048576, not 'first'"),
])
def test_mistakes_get_one_line(options, message, capsys):
    path = str(SAMPLES / "kineto.json")
    assert main(["model", "show", *(option.format(path) for option in options)]) == 2
    assert capsys.readouterr() == ("", f"dxpu model: error: {message.format(path)}\n")
