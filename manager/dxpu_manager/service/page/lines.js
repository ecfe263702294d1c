/** Bindings as lines from slots to ports. */

import {find, keep, set} from "./dom.js";

/** Up to so many bindings are all shown; of more, those of what is pointed at or changes. */
const FEW = 64;
const SVG = "http://www.w3.org/2000/svg";

export class Lines {
  constructor(svg, pool, view) {
    [this.svg, this.pool, this.view] = [svg, pool, view];
  }

  /** GPUs whose lines are to be seen. */
  #wanted() {
    const bound = [...this.pool.gpus.values()].filter(gpu => gpu.host);
    const {near, selected, allLines} = this.view;
    if (allLines || bound.length <= FEW) return bound;
    return bound.filter(gpu => near.gpus.has(gpu.id) || selected.has(gpu.id)
      || gpu.state === "attaching" || gpu.state === "draining");
  }

  render() {
    const space = this.svg.getBoundingClientRect();
    const gaps = ["#racks", "#hosts"].map(list => parseFloat(getComputedStyle(find(list)).rowGap));
    const drawn = [];
    // All is measured before anything is changed.
    for (const gpu of space.width ? this.#wanted() : []) {
      const path = this.#path(gpu, space, gaps);
      if (path) drawn.push({gpu, path});
    }
    keep(this.svg, drawn, line => line.gpu.id, () => document.createElementNS(SVG, "path"),
      (line, {gpu, path}) => {
        set(line, "d", path);
        set(line, "data-state", gpu.state);
        set(line, "class", this.view.near.gpus.has(gpu.id) ? "near" : null);
      });
  }

  /** From below a slot through the gap between boxes, in a curve to the gap below the host's row,
   *  and up to the port: the line covers no letter. */
  #path(gpu, space, gaps) {
    const slot = document.querySelector(`[data-gpu="${gpu.id}"]`);
    const host = document.querySelector(`[data-host="${gpu.host}"]`);
    const port = host?.querySelector(`[data-port="${gpu.port}"]`);
    if (!slot?.offsetParent || !port?.offsetParent) return null;
    const [from, to, box, row, racks, hosts] = [slot, port, slot.parentElement, host,
      slot.closest("section"), host.closest("section")].map(one => one.getBoundingClientRect());
    // Each slot and each port has a lane of its own in the gap.
    const lane = (part, count, gap) => 1 + (gap - 2) * part / count;
    const [racksGap, hostsGap] = gaps;
    const x = from.left + from.width / 2 - space.left;
    const down = box.bottom - space.top
      + lane(gpu.slot, slot.parentElement.children.length, racksGap);
    const [left, right] = [racks.right - space.left, hosts.left - space.left];
    const end = to.left + to.width / 2 - space.left;
    const up = row.bottom - space.top
      + lane(gpu.port, port.parentElement.children.length, hostsGap);
    const half = (left + right) / 2;
    return `M${x} ${from.bottom - space.top}V${down}H${left}`
      + `C${half} ${down} ${half} ${up} ${right} ${up}H${end}V${to.bottom - space.top}`;
  }
}
