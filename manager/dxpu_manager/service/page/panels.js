/** Counters, tasks, the queue, and events. */

import {find, keep, make, say, set} from "./dom.js";
import {LETTERS} from "./pool.js";

const STATES = Object.keys(LETTERS).filter(state => state !== "absent");
/** Ended tasks that are shown. */
const ENDED = 20;

/** A time of the manager as the clock of the user has it. */
export function clock(text) {
  return text ? new Date(text).toLocaleTimeString([], {hour12: false}) : "";
}

export class Panels {
  constructor(pool, view, actions) {
    [this.pool, this.view, this.actions] = [pool, view, actions];
    find("#request").addEventListener("click", () => actions.request());
    find("#change-spares").addEventListener("click", () => actions.spares());
  }

  render() {
    this.#states();
    this.#facts();
    this.#tasks();
    this.#requests();
    this.#spares();
    keep(find("#events"), this.pool.events, event => event.id, event => make("li", {},
      make("time", {datetime: event.time}, clock(event.time)), ` ${event.said}`), () => {});
  }

  #states() {
    const counts = Object.groupBy(this.pool.gpus.values(), gpu => gpu.state);
    keep(find("#states"), STATES, state => state, state => make("button", {
      type: "button", onclick: () => this.view.filter(state)},
    make("span", {class: "slot", "data-state": state, "aria-hidden": "true"}, LETTERS[state]),
    make("span"), make("b")), (button, state) => {
      const [, name, count] = button.children;
      say(name, state);
      say(count, String(counts[state]?.length ?? 0));
      set(button, "aria-pressed", String(this.view.states.has(state)));
    });
  }

  #facts() {
    const {pool} = this;
    const silent = Object.keys(pool.unreachable)
      .filter(id => pool.boxes.has(id) || pool.hosts.has(id)).length;
    const waiting = [...pool.requests.values()].filter(one => one.phase === "waiting").length;
    const running = [...pool.tasks.values()].filter(one => !one.ended).length;
    const stopped = [...pool.subscriptions.values()].filter(one => one.suspended).length;
    const dead = [...pool.boxes.values(), ...pool.hosts.values()]
      .reduce((sum, node) => sum + node.dead.length, 0);
    const facts = [
      ["GPUs", pool.gpus.size], ["boxes", pool.boxes.size], ["hosts", pool.hosts.size],
      ["silent nodes", silent, silent > 0],
      ["dead paths", dead, dead > 0], ["requests that wait", waiting],
      ["tasks that run", running], ["subscribers", pool.subscriptions.size],
      ["deliveries stopped", stopped, stopped > 0]];
    keep(find("#facts"), facts, fact => fact[0], fact => make("div", {}, make("dt", {}, fact[0]),
      make("dd")), (element, [, count, warns]) => {
      say(element.lastElementChild, String(count));
      set(element, "class", warns ? "warns" : null);
    });
  }

  #spares() {
    const {spares} = this.pool;
    if (!spares) return;
    const percent = (part, digits) => `${(100 * part).toFixed(digits)} %`;
    keep(find("#spares"), spares.models, one => one.model, () => make("tr", {},
      ...Array.from({length: 4}, () => make("td"))), (row, one) => {
      const short = spares.keep && one.held < one.wanted;
      set(row, "class", short ? "failed" : null);
      const rate = `${percent(one.rate, 1)} a year${spares.rate === null
        ? ` at most: ${one.failures} failures in ${one.years.toFixed(1)} GPU-years` : ""}`;
      [one.model || "none said", `${one.held}${short ? ", too few" : ""}`, String(one.wanted),
        `${one.inRepair.toFixed(2)} of ${one.gpus} in repair (${rate}); these cover ${
          percent(one.covered, 2)}`].forEach((text, n) => say(row.children[n], text));
    });
    say(find("#spares-policy"), `${spares.keep ? "Kept by the manager" : "Kept by hand"}, for `
      + `${percent(spares.probability, 4).replace(/\.?0+ %/, " %")} of the time; a repair takes `
      + `${spares.days} days.`);
  }

  #row(row, one, cells, buttons) {
    while (row.children.length < cells.length) row.append(make("td"));
    cells.forEach((text, n) => say(row.children[n], text));
    const last = row.children[cells.length] ?? row.appendChild(make("td"));
    keep(last, this.pool.client.mayChange ? buttons : [], ([name]) => name, ([name, does]) =>
      make("button", {type: "button", "aria-label": `${name} ${one}`, onclick: () => does()}, name),
    () => {});
  }

  #tasks() {
    const all = [...this.pool.tasks.values()].sort((a, b) => b.id - a.id);
    const shown = [...all.filter(one => !one.ended),
      ...all.filter(one => one.ended).slice(0, ENDED)];
    keep(find("#tasks"), shown, task => task.id, () => make("tr"), (row, task) => {
      set(row, "class", task.failed ? "failed" : task.ended ? "ended" : null);
      this.#row(row, `task ${task.id}`,
        [task.id, task.said ? `${task.what}: ${task.said}` : task.what, task.state.toLowerCase()],
        task.ended ? [] : [["Cancel", () => this.actions.cancel(task)]]);
    });
  }

  #requests() {
    const order = ["waiting", "starting", "reserved", "holding", "ending", "ended"];
    const shown = [...this.pool.requests.values()].filter(one => one.phase !== "ended")
      .sort((a, b) => order.indexOf(a.phase) - order.indexOf(b.phase) || a.id - b.id);
    keep(find("#requests"), shown, one => one.id, () => make("tr"), (row, one) => {
      const until = one.until ? ` until ${clock(one.until)}` : "";
      const host = this.pool.hosts.get(one.host)?.name ?? one.host;
      const what = one.said.startsWith(one.wants) ? one.said
        : one.wants + (one.said && `: ${one.said}`);
      const priority = one.priority ? `, priority ${one.priority}` : "";
      this.#row(row, `request ${one.id}`,
        [one.id, `${host}: ${what}${priority}`, one.phase + until],
        [...one.phase === "reserved" ? [["Take up", () => this.actions.takeUp(one)]] : [],
          ...one.phase === "holding" ? [["Lease", () => this.actions.lease(one)]] : [],
          ...one.phase === "ending" ? [] : [["End", () => this.actions.end(one)]]]);
    });
  }
}
