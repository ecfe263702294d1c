/** All that is known of a GPU, a host or a box, at the side, up to date while it is open. */

import {open} from "./dialogs.js";
import {find, keep, make, say} from "./dom.js";
import {clock} from "./panels.js";

export class Detail {
  constructor(pool, actions) {
    [this.pool, this.actions, this.dialog] = [pool, actions, null];
  }

  show(kind, id) {
    this.close(false);
    [this.kind, this.id] = [kind, id];
    this.pool.watched = kind === "gpu" ? id : null;
    this.facts = make("dl", {});
    this.buttons = make("div", {class: "buttons"});
    this.back = make("button", {
      type: "button", class: "back", onclick: () => this.close()}, "Back");
    const title = {gpu: "GPU", host: "Host", box: "Box"}[kind];
    this.dialog = open(`${title} ${id}`, "detail", false, this.facts, this.buttons, this.back);
    // On a narrow screen it is not over what it shows.
    this.dialog.classList.toggle("low",
      this.element?.getBoundingClientRect().top < window.innerHeight / 2);
    this.render();
    (this.buttons.firstElementChild ?? this.back).focus();
  }

  /** The element in the map of what is shown, or null. */
  get element() {
    return this.dialog && find(`[data-${this.kind}="${this.id}"]`);
  }

  /** Close it, and give the focus back to what was shown. */
  close(returns = true) {
    if (!this.dialog) return;
    const {element} = this;
    const held = this.dialog.contains(document.activeElement);
    this.dialog.close();
    this.dialog = this.pool.watched = null;
    if (returns && held) element?.focus();
  }

  render() {
    if (!this.dialog) return;
    const one = this.pool[{gpu: "gpus", host: "hosts", box: "boxes"}[this.kind]].get(this.id);
    if (!one) {
      this.close();
      return;
    }
    const facts = {gpu: () => this.#gpu(one), host: () => this.#host(one),
      box: () => this.#box(one)}[this.kind]().filter(([, text]) => text);
    keep(this.facts, facts, ([name]) => name, ([name]) =>
      make("div", {}, make("dt", {}, name), make("dd")), (element, [, text]) =>
      say(element.lastElementChild, String(text)));
    const {actions} = this;
    const buttons = !this.pool.client.mayChange ? []
      : {gpu: () => actions.ofGpu(one), host: () => actions.ofHost(one),
        box: () => actions.ofBox(one)}[this.kind]();
    keep(this.buttons, buttons, ([name]) => name, ([name, , danger]) =>
      make("button", {type: "button", class: danger ? "danger" : "", onclick: event =>
        event.currentTarget.does()}, name),
    (button, [, does]) => { button.does = does; });
  }

  #gpu(gpu) {
    const host = gpu.host && (this.pool.hosts.get(gpu.host)?.name ?? gpu.host);
    return [["State", gpu.state], ["Since", gpu.since && new Date(gpu.since).toLocaleString()],
      ["Because", gpu.cause], ["Model", gpu.model || "not said"],
      ["Serial number", gpu.serial],
      ["Box", this.pool.boxes.get(gpu.box)?.name ?? gpu.box], ["Slot", gpu.slot],
      ["Host", host && `${host}, port ${gpu.port}`],
      ["Path", host && this.#path(gpu)], ...this.#evidence(gpu), ["Task", gpu.task], ["Request", gpu.request], ["Fault", gpu.broken]];
  }

  /** The path of a binding, and at which end it has no link. */
  #path(gpu) {
    const ends = [this.pool.hosts.get(gpu.host), this.pool.boxes.get(gpu.box)]
      .filter(node => node?.dead.includes(gpu.path)).map(node => node.name);
    return `${gpu.path}${ends.length ? `: no link at ${ends.join(" and ")}` : ""}`;
  }

  /** Why a GPU counts as the host's, or not yet. */
  #evidence(gpu) {
    if (gpu.state !== "attaching" && gpu.state !== "attached") return [];
    const since = {windows: gpu.windows, "word of the agent": gpu.confirmed};
    const lines = gpu.evidence.map(one => one + (since[one] ? `, since ${clock(since[one])}` : ""));
    const {missing, missingSince, missingUntil} = gpu;
    return [["Evidence", lines.join("\n") || "none yet"],
      ["Missing", missing && `${missing}, since ${clock(missingSince)}${missingUntil
        ? `; the attach fails at ${clock(missingUntil)}` : ""}`]];
  }

  #node(node) {
    return [["Name", node.label], ["Answers", this.pool.unreachable[node.id] ?? "yes"],
      ["Open", node.closed ? "no: gets or gives nothing new" : "yes"],
      ["Node number", node.number], ["Address", node.address],
      ["Paths", node.paths > 1 || node.dead.length ? this.#paths(node) : ""]];
  }

  /** Paths of a node, each with its GPUs. */
  #paths(node) {
    const carried = [...this.pool.gpus.values()].filter(gpu =>
      gpu.host && (gpu.host === node.id || gpu.box === node.id));
    return Array.from({length: node.paths}, (_, path) => {
      const count = carried.filter(gpu => gpu.path === path).length;
      return `${path}: ${count} GPU${count === 1 ? "" : "s"}${
        node.dead.includes(path) ? ", no link" : ""}`;
    }).join("\n");
  }

  #host(host) {
    const held = this.pool.gpusOf(host);
    const requests = [...this.pool.requests.values()]
      .filter(one => one.host === host.id && one.phase !== "ended");
    return [...this.#node(host), ["Ports", `${held.length} of ${host.ports} in use`],
      ["GPUs", held.map(gpu => `port ${gpu.port}: ${gpu.id}, ${gpu.state}`).join("\n")],
      ["Requests", requests.map(one => `${one.id}: ${one.phase}`
        + `${one.until ? ` until ${clock(one.until)}` : ""}`).join("\n")]];
  }

  #box(box) {
    const slots = this.pool.slotsOf(box);
    return [...this.#node(box), ["Kind", box.kind],
      ["Slots", slots.map((gpu, n) => `${n + 1}: ${gpu && gpu.state !== "absent"
        ? `${gpu.state}${gpu.model && `, ${gpu.model}`}${gpu.host
          ? `, ${this.pool.hosts.get(gpu.host)?.name ?? gpu.host}` : ""}`
        : "empty"}`).join("\n")]];
  }
}
