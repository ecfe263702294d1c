// Traces a window of a simulation: a bench opens and closes the file while the model runs.
//
// Verilator's own main program can only trace a run from its first cycle to its last. Here a callback
// before each new time step writes the values with which the step before it ended. Called from Python
// through ctypes (dxpu_sim.waves).

#include <memory>

#include <verilated.h>
#include <vpi_user.h>

#if VM_TRACE_FST
#include <verilated_fst_c.h>
using TraceFile = VerilatedFstC;
#else
#include <verilated_vcd_c.h>
using TraceFile = VerilatedVcdC;
#endif

namespace {

std::unique_ptr<TraceFile> file;
vluint64_t step;

vluint64_t now() {
    s_vpi_time time{};
    time.type = vpiSimTime;
    vpi_get_time(nullptr, &time);
    return static_cast<vluint64_t>(time.high) << 32 | time.low;
}

void arm();

PLI_INT32 next_step(p_cb_data) {
    if (file) {
        file->dump(step);
        step = now();
        arm();
    }
    return 0;
}

void arm() {
    static s_vpi_time time{};
    time.type = vpiSimTime;
    s_cb_data callback{};
    callback.reason = cbNextSimTime;
    callback.cb_rtn = next_step;
    callback.time = &time;
    vpi_register_cb(&callback);
}

}  // namespace

// Start a trace file; returns 0 if it cannot be written or one is open.
extern "C" int dxpu_trace_open(const char* path) {
    if (file) return 0;
    file = std::make_unique<TraceFile>();
    Verilated::threadContextp()->trace(file.get(), 99);
    file->open(path);
    if (!file->isOpen()) {
        file.reset();
        return 0;
    }
    step = now();
    arm();
    return 1;
}

// Write the current step and complete the file.
extern "C" void dxpu_trace_close() {
    if (!file) return;
    file->dump(step);
    file->close();
    file.reset();
}
