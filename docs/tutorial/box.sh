#!/bin/sh
# Simulates a box with two GPUs on an Ethernet of its own. A host in software looks into it; then
# registers are read by the box's serial line. The results are in build/box.
cd "$(dirname "$0")/../.." || exit
PATH=$PWD/.venv/bin:$PATH
commands='[
  ["dxpu", "slots", "--iface", "host0", "--box", "0x101", "--slots", "1,2", "--slower", "20"],
  ["dxpu", "console", "console", "bindings"],
  ["dxpu", "console", "console", "counters"]]'
exec unshare --map-root-user --net python -m dxpu_sim.software_host.network build/box 1 "$commands"
