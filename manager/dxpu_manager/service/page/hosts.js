/** Hosts with their ports. */

import {keep, make, rove, say, set} from "./dom.js";

/** The list of hosts; elements have the name of the host in `data-host`. */
export class Hosts {
  constructor(list, pool, view) {
    [this.list, this.pool, this.view] = [list, pool, view];
    this.none = list.nextElementSibling;
    this.settle = rove(list, () => [...list.querySelectorAll("li:not([hidden]) > button")]);
    list.addEventListener("click", event => {
      const at = event.target.closest("[data-host]");
      if (at) view.show("host", at.dataset.host);
    });
  }

  render() {
    const hosts = [...this.pool.hosts.values()];
    keep(this.list, hosts, host => host.id, host => make("li", {}, make("button", {
      type: "button", class: "host", tabindex: -1, "data-host": host.id},
    make("span", {class: "ports", "aria-hidden": "true"}), make("span", {class: "name"}))),
    (row, host) => this.#host(row, host));
    this.none.hidden = hosts.length === 0 || hosts.some(host => this.#fits(host));
    this.settle();
  }

  #fits(host) {
    return this.view.fits(host.id, host.name, ...this.pool.gpusOf(host).map(gpu => gpu.id));
  }

  #host(row, host) {
    row.hidden = !this.#fits(host);
    const button = row.firstElementChild;
    const [ports, name] = button.children;
    const held = this.pool.gpusOf(host);
    const trouble = this.pool.unreachable[host.id];
    const marks = this.pool.marksOf(host);
    say(name, host.name);
    set(button, "aria-label",
      `Host ${host.name}, ${held.length} of ${host.ports} ports in use${marks && `, ${marks}`}`);
    set(button, "title", marks ? `${host.name}: ${marks}` : host.name);
    set(button, "class", `host${trouble ? " silent" : ""}${host.closed ? " closed" : ""}`
      + `${host.dead.length ? " unlinked" : ""}`
      + `${this.view.near.hosts.has(host.id) ? " near" : ""}`);
    while (ports.children.length < host.ports) {
      ports.append(make("i", {"data-port": ports.children.length}));
    }
    while (ports.children.length > host.ports) ports.lastElementChild.remove();
    const used = new Map(held.map(gpu => [gpu.port, gpu]));
    [...ports.children].forEach((port, n) => {
      set(port, "data-state", used.get(n)?.state ?? null);
    });
  }
}
