"""dxpu_sim.run.runner: what a run is given reaches it."""

from dxpu_sim.run import verilate


def test_variables_of_a_run_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("DXPU_SEED", "1")
    monkeypatch.setenv("DXPU_OTHER", "kept")
    verilator = verilate.program_runner()
    verilator.env = {"DXPU_SEED": "7"}
    verilator._set_env_common()
    assert verilator.env["DXPU_SEED"] == "7" and verilator.env["DXPU_OTHER"] == "kept"
