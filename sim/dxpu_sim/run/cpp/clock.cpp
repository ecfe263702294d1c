// Drives the clocks of dxpu_sim_clock (dxpu_sim.run.clock) by callbacks of VPI.
//
// Delays in Verilog would be simpler. But in a design with any delay, Verilator computes the next
// state of all registers apart from its assignment, with a copy of each register.

#include <deque>

#include <svdpi.h>
#include <verilated.h>
#include <verilated_syms.h>
#include <vpi_user.h>

namespace {

struct Clock {
    CData* pin;
    //! Time for which it is low, and for which it is high.
    PLI_UINT32 times[2];
};

//! Of all instances; callbacks hold addresses of elements.
std::deque<Clock> clocks;

PLI_INT32 edge(p_cb_data data);

void arm(Clock& clock, PLI_UINT32 delay) {
    s_vpi_time time{};
    time.type = vpiSimTime;
    time.low = delay;
    s_cb_data callback{};
    callback.reason = cbAfterDelay;
    callback.cb_rtn = edge;
    callback.time = &time;
    callback.user_data = reinterpret_cast<PLI_BYTE8*>(&clock);
    // The handle is not needed, and must not stay behind each edge.
    if (vpiHandle handle = vpi_register_cb(&callback)) vpi_release_handle(handle);
}

PLI_INT32 edge(p_cb_data data) {
    Clock& clock = *reinterpret_cast<Clock*>(data->user_data);
    *clock.pin ^= 1;
    arm(clock, clock.times[*clock.pin]);
    return 0;
}

}  // namespace

// Start the clock of the calling instance: its first edge is half a period after `phase_ps`.
extern "C" void dxpu_clock(int period_ps, int phase_ps, int high_ps) {
    const auto* const scope = static_cast<const VerilatedScope*>(svGetScope());
    const auto low = static_cast<PLI_UINT32>(period_ps - high_ps);
    const auto high = static_cast<PLI_UINT32>(high_ps);
    clocks.push_back({static_cast<CData*>(scope->varFind("clk")->datap()), {low, high}});
    arm(clocks.back(), phase_ps + period_ps / 2);
}
