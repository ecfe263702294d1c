/** Bindings as lines from slots to ports. */

import {find, keep, say, set} from "./dom.js";

/** Up to so many bindings are all shown; of more, those of what is pointed at or changes. */
const FEW = 64;
const SVG = "http://www.w3.org/2000/svg";
/** Where on a curve the label of its path may be, from 0 at the boxes to 1 at the hosts; and its
 *  width and height. */
const PLACES = [0.65, 0.5, 0.8, 0.35], WIDTH = 40, HEIGHT = 14;

const create = tag => document.createElementNS(SVG, tag);

export class Lines {
  constructor(svg, pool, view) {
    [this.svg, this.pool, this.view] = [svg, pool, view];
    [this.curves, this.labels] = [create("g"), create("g")];
    svg.append(this.curves, this.labels);
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
      const line = this.#line(gpu, space, gaps);
      if (line) drawn.push({gpu, ...line});
    }
    keep(this.curves, drawn, line => line.gpu.id, () => create("path"),
      (line, {gpu, path}) => {
        set(line, "d", path);
        set(line, "data-state", gpu.state);
        set(line, "class", this.view.near.gpus.has(gpu.id) ? "near" : null);
      });
    keep(this.labels, this.#named(drawn), label => label.key, () => create("text"),
      (label, {x, y, path, near, isDead}) => {
        set(label, "x", x);
        set(label, "y", y);
        set(label, "class", [near && "near", isDead && "dead"].filter(Boolean).join(" ") || null);
        say(label, `path ${path}${isDead ? " ✕" : ""}`);
      });
  }

  /** Labels with the path of each host and box, beside one of their lines; of many lines, of those
   *  that are pointed at. */
  #named(drawn) {
    if (!this.pool.hasPaths) return [];
    const {near} = this.view;
    const pairs = new Map();
    for (const line of drawn) {
      const {gpu} = line;
      const isNear = near.gpus.has(gpu.id);
      const key = `${gpu.host} ${gpu.box}`;
      if ((isNear || drawn.length <= FEW) && !(pairs.get(key)?.near >= isNear)) {
        pairs.set(key, {key, line, near: isNear, path: gpu.path, isDead: [
          this.pool.hosts.get(gpu.host), this.pool.boxes.get(gpu.box)].some(
          node => node?.dead.includes(gpu.path))});
      }
    }
    const labels = [];
    for (const label of [...pairs.values()].sort((a, b) => b.near - a.near)) {
      const places = PLACES.map(part => label.line.at(part));
      const covers = ({x, y}) => labels.some(one =>
        Math.abs(one.x - x) < WIDTH && Math.abs(one.y - y) < HEIGHT);
      labels.push({...label, ...places.find(place => !covers(place)) ?? places[0]});
    }
    return labels;
  }

  /** From below a slot through the gap between boxes, in a curve to the gap below the host's row,
   *  and up to the port: the line covers no letter. */
  #line(gpu, space, gaps) {
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
    const path = `M${x} ${from.bottom - space.top}V${down}H${left}`
      + `C${half} ${down} ${half} ${up} ${right} ${up}H${end}V${to.bottom - space.top}`;
    const at = part => ({
      x: Math.round(left * (1 - part) ** 3 + 3 * half * part * (1 - part) + right * part ** 3),
      y: Math.round(down + (up - down) * part ** 2 * (3 - 2 * part))});
    return {path, at};
  }
}
