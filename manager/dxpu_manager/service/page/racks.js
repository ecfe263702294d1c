/** Boxes as racks, a cell for each slot. */

import {keep, make, rove, say, set} from "./dom.js";
import {LETTERS} from "./pool.js";

/** The grid of boxes. Elements have the name of what they show in `data-gpu` or `data-box`. */
export class Racks {
  constructor(grid, pool, view) {
    [this.grid, this.pool, this.view] = [grid, pool, view];
    this.none = grid.nextElementSibling;
    this.settle = rove(grid, () => [...grid.querySelectorAll(".box:not([hidden]) > *")]);
    grid.addEventListener("click", event => this.#act(event, event.ctrlKey || event.metaKey));
    grid.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.#act(event, event.key === " ");
    });
  }

  #act(event, selects) {
    const at = event.target.closest("[data-gpu], [data-box]");
    if (!at) return;
    if (at.dataset.box) this.view.show("box", at.dataset.box);
    else if (selects) this.view.select(at.dataset.gpu);
    else if (this.pool.gpus.has(at.dataset.gpu)) this.view.show("gpu", at.dataset.gpu);
  }

  render() {
    const boxes = [...this.pool.boxes.values()];
    keep(this.grid, boxes, box => box.id, box => make("div", {class: "box", role: "row"},
      make("div", {class: "name", role: "rowheader", tabindex: -1, "data-box": box.id})),
    (row, box) => this.#box(row, box));
    this.none.hidden = boxes.length === 0 || boxes.some(box => this.#shown(box));
    this.settle();
  }

  #shown(box) {
    return this.view.fits(box.name, box.id)
      || this.pool.slotsOf(box).some(gpu => gpu && this.view.fits(...this.#words(gpu, box)));
  }

  #words(gpu, box) {
    const host = this.pool.hosts.get(gpu.host);
    return [gpu.id, box.name, gpu.model, gpu.serial ?? "", gpu.state, host?.id ?? "", host?.name ?? ""];
  }

  #box(row, box) {
    const trouble = this.pool.unreachable[box.id];
    row.hidden = !this.#shown(box);
    set(row, "class", `box${trouble ? " silent" : ""}${box.closed ? " closed" : ""}${
      box.dead.length ? " unlinked" : ""}`);
    const name = row.firstElementChild;
    say(name, box.name);
    const count = this.pool.slotsOf(box).filter(gpu => gpu?.state === "free").length;
    const marks = this.pool.marksOf(box);
    set(name, "aria-label", `Box ${box.name}, ${count} free${marks && `, ${marks}`}`);
    set(name, "title", marks ? `${box.name}: ${marks}` : box.name);
    const slots = this.pool.slotsOf(box);
    while (row.children.length < slots.length + 1) {
      row.append(make("div", {class: "slot", role: "gridcell", tabindex: -1,
        "data-gpu": `${box.id}.${row.children.length}`}));
    }
    while (row.children.length > slots.length + 1) row.lastElementChild.remove();
    slots.forEach((gpu, n) => this.#slot(row.children[n + 1], gpu, box, n + 1));
  }

  #slot(cell, gpu, box, slot) {
    const state = gpu?.state ?? "absent";
    const {view} = this;
    say(cell, LETTERS[state] ?? "?");
    set(cell, "data-state", state);
    const host = gpu?.host && (this.pool.hosts.get(gpu.host)?.name ?? gpu.host);
    set(cell, "aria-label", state === "absent" ? `Slot ${slot} of ${box.name}, empty`
      : `GPU ${gpu.id}, ${state}${host ? `, host ${host}` : ""}${
        host && this.pool.hasPaths ? `, path ${gpu.path}` : ""}${gpu.model && `, ${gpu.model}`}`);
    const selected = view.selected.has(cell.dataset.gpu);
    if (gpu) set(cell, "aria-selected", String(selected));
    const dim = (view.states.size && !view.states.has(state))
      || (view.words.length && !(gpu && view.fits(...this.#words(gpu, box))));
    const near = gpu && (view.near.gpus.has(gpu.id));
    set(cell, "class", `slot${dim ? " dim" : ""}${near ? " near" : ""}`);
  }
}
