/** What a user can change, each after a question. */

import {BLOCKS, COMPOSITION, REQUESTS, ROOT} from "./client.js";
import {ask, choice, field} from "./dialogs.js";
import {make} from "./dom.js";

const block = id => ({"@odata.id": `${BLOCKS}/${id}`});
const several = ids => ids.length === 1 ? `GPU ${ids[0]}`
  : `${ids.length} GPUs (${ids.slice(0, 4).join(", ")}${ids.length > 4 ? ", …" : ""})`;

/** Actions at one GPU: name, states in which there is something to do, sentence, and whether it
 *  takes something away for good. */
const AT_GPU = {
  Admit: ["Admit", ["quarantined"],
    "can be given away from now on. Has it been looked at, and is its memory clean?"],
  Spare: ["Keep as a spare", ["free"], "is kept back for one that fails."],
  Unspare: ["No spare any more", ["spare"], "is anybody's to have again."],
  SetAside: ["Set aside", ["free", "spare", "reserved", "failed"],
    "is not given away until somebody admits it."],
  Retire: ["Retire", ["quarantined", "failed"],
    "is forgotten, as it leaves its slot. If it is still there, it comes back as a new one."],
};

export class Actions {
  constructor(client, pool, view) {
    [this.client, this.pool, this.view] = [client, pool, view];
  }

  /** Do something at the manager, and tell the user. */
  async #post(path, body) {
    const said = await this.client.ask("POST", path, body);
    if (said?.["@odata.type"]?.startsWith("#Task.")) this.view.follow(said.Id, said.Description);
    else this.view.tell("done");
    return said;
  }

  #name(host) {
    return this.pool.hosts.get(host)?.name ?? host;
  }

  #hosts(count) {
    return [...this.pool.hosts.values()].map(host => {
      const free = host.ports - this.pool.gpusOf(host).length;
      const why = this.pool.unreachable[host.id] ? "does not answer" : host.closed ? "closed"
        : `${free} free ports`;
      return [host.id, `${host.name} – ${why}`, why !== `${free} free ports` || free < count];
    });
  }

  /** Buttons for a GPU: name, what it opens, and whether that is dangerous. */
  ofGpu(gpu) {
    const made = [];
    if (["free", "spare", "reserved"].includes(gpu.state)) {
      made.push(["Attach…", () => this.attach([gpu.id])]);
    }
    if (gpu.state === "attached") {
      made.push(["Detach…", () => this.detach(gpu.host, [gpu.id])],
        ["Give up as broken…", () => this.#giveUp(gpu), true]);
    }
    for (const [action, [name, states, says]] of Object.entries(AT_GPU)) {
      if (states.includes(gpu.state)) {
        made.push([`${name}…`, () => this.#atGpu(gpu, action, name, says), action === "Retire"]);
      }
    }
    made.push(["Model…", () => this.#model(gpu)]);
    return made;
  }

  ofHost(host) {
    const held = this.pool.gpusOf(host).filter(gpu => gpu.state === "attached").map(gpu => gpu.id);
    return [["Request GPUs…", () => this.request(host.id)],
      ...held.length ? [["Detach all…", () => this.detach(host.id, held)]] : [],
      ...this.#ofNode("Host", `${ROOT}/Systems/${host.id}`, host)];
  }

  ofBox(box) {
    const path = `${ROOT}/Chassis/${box.id}`;
    return [...this.#ofNode("Box", path, box), ["Kind…", () => ask({
      title: `Kind of box ${box.name}`, verb: "Say so",
      fields: [field("Kind", choice("kind", [["switch", "behind a PCIe switch"],
        ["joined", "joined, as on an NVLink board"]], box.kind))],
      says: form => `Several GPUs for a host ${form.kind === "joined" ? "go into this box, if"
        : "go into other boxes, if those join them and"} there is room.`,
      does: this.#change(path, form => ({Kind: form.kind}), `box ${box.name} has its kind`)})]];
  }

  /** What a form does that changes a property of the own schema. */
  #change(path, values, said) {
    return async form => {
      await this.client.ask("PATCH", path, {Oem: {DxPU: values(form)}});
      this.view.tell(said);
    };
  }

  #model(gpu) {
    const model = make("input", {name: "model", value: gpu.model, maxlength: 64,
      autocomplete: "off", spellcheck: "false"});
    ask({title: `Model of ${gpu.id}`, verb: "Say so", fields: [field("Model", model)],
      says: form => `GPU ${gpu.id} is given to who wants ${form.model
        ? `a ${form.model}, or any GPU` : "any GPU, and to nobody who wants a model"}.`,
      does: this.#change(`${BLOCKS}/${gpu.id}`, form => ({Model: form.model}),
        `GPU ${gpu.id} has its model`)});
  }

  #ofNode(what, path, node) {
    const closes = !node.closed;
    const verb = closes ? "Close" : "Open";
    const label = make("input", {name: "label", value: node.label, maxlength: 64,
      autocomplete: "off"});
    return [[`${verb} the ${what.toLowerCase()}…`, () => ask({
      title: `${verb} ${what.toLowerCase()} ${node.name}`, verb,
      says: () => !closes ? `${what} ${node.name} takes part again.` : what === "Host"
        ? `Host ${node.name} gets no more GPUs; it keeps those that it has.`
        : `No more GPUs of box ${node.name} are given away; those in use stay.`,
      does: this.#change(path, () => ({Closed: closes}),
        `${what} ${node.name} is ${closes ? "closed" : "open"}`)})],
    ["Name…", () => ask({
      title: `Name ${what.toLowerCase()} ${node.id}`, verb: "Name", fields: [field("Name", label)],
      says: form => `${what} ${node.id} is called ${form.label || "by its serial number"}.`,
      does: this.#change(path, form => ({Label: form.label}),
        `${what} ${node.id} has its name`)})]];
  }

  #atGpu(gpu, action, name, says) {
    ask({title: `${name}: ${gpu.id}`, verb: name, danger: action === "Retire",
      says: () => `GPU ${gpu.id} ${says}`,
      does: () => this.#post(`${BLOCKS}/${gpu.id}/Actions/Oem/DxPU.${action}`, {})});
  }

  attach(ids) {
    const hosts = this.#hosts(ids.length);
    const first = hosts.find(([, , off]) => !off)?.[0] ?? "";
    ask({title: `Attach ${several(ids)}`, verb: "Attach",
      fields: [field("Host", choice("host", hosts, first))],
      says: form => form.host ? `${several(ids)} will be attached to host ${
        this.#name(form.host)}, which sees ${ids.length === 1 ? "a card that is" : "cards that are"
      } plugged in. All or none.` : `No host has ${ids.length} free ports.`,
      does: form => this.#post(`${ROOT}/Systems/${form.host}/Actions/Oem/DxPU.Attach`,
        {ResourceBlocks: ids.map(block)})});
  }

  detach(host, ids) {
    const name = this.#name(host);
    ask({title: `Detach ${several(ids)}`, verb: "Detach", danger: true,
      fields: [field("How", choice("how", [["consent", "with the consent of the host"],
        ["force", "by force, without asking"]]))],
      says: form => form.how === "force"
        ? `${several(ids)} will be torn from host ${name}. Programs that use it fail, and the host `
          + "may hang."
        : `Host ${name} is asked to let go of ${several(ids)}. If a program still uses it, nothing `
          + "changes. Its memory is wiped before anybody else has it.",
      word: form => form.how === "force" ? name : null,
      does: form => this.#post(`${ROOT}/Systems/${host}/Actions/Oem/DxPU.Detach`,
        {ResourceBlocks: ids.map(block), Force: form.how === "force"})});
  }

  #giveUp(gpu) {
    const name = this.#name(gpu.host);
    const reason = make("input", {name: "reason", maxlength: 200, autocomplete: "off"});
    ask({title: `Give up ${gpu.id}`, verb: "Give up", danger: true,
      fields: [field("What is wrong with it", reason)], word: () => gpu.id,
      says: () => `GPU ${gpu.id} will be torn from host ${name} and counts as failed.${
        gpu.request ? ` Request ${gpu.request} gets another one in its place.` : ""}`,
      does: form => this.#post(`${BLOCKS}/${gpu.id}/Actions/Oem/DxPU.GiveUp`,
        form.reason ? {Reason: form.reason} : {})});
  }

  request(host = "") {
    const hosts = this.#hosts(1);
    const first = host || (hosts.find(([, , off]) => !off)?.[0] ?? "");
    const number = (name, value, min, more = {}) =>
      make("input", {name, type: "number", value, min, step: 1, ...more});
    ask({title: "Request GPUs", verb: "Request",
      fields: [
        field("Host", choice("host", hosts, first)),
        field("How many", number("count", 1, 1, {max: 256, required: true})),
        field("Model", choice("model", [["", "any"], ...this.pool.models.map(one => [one, one])])),
        field("Where", choice("where", [["any", "anywhere"], ["box", "in one box"],
          ["joined", "in one box that joins them"], ["apart", "each in another box"]])),
        field("Priority", number("priority", 0, "")),
        field("For so many minutes", number("lease", "", 1, {placeholder: "without an end"})),
        field("Then", choice("keep", [["", "attach them"], ["keep", "keep them for the host"]]))],
      says: form => `${form.count} ${form.model || "GPU"}${form.count === "1" ? "" : "s"} will be `
        + `${form.keep ? "kept for" : "attached to"} host ${this.#name(form.host)} as soon as `
        + `there is a place${form.lease ? `, and taken away ${form.lease} min later` : ""}.`,
      does: async form => {
        const made = await this.client.ask("POST", REQUESTS, {
          Host: form.host, Count: Number(form.count), Where: form.where,
          ...form.model && {Model: form.model}, Priority: Number(form.priority || 0),
          Keep: Boolean(form.keep),
          ...form.lease && {LeaseSeconds: 60 * Number(form.lease)}});
        this.view.tell(`request ${made.Id}: ${made.Explanation || made.Phase}`);
      }});
  }

  spares() {
    const {keep = false, probability = 0.999, days = 7, rate = null} = this.pool.spares ?? {};
    const number = (name, value, min, max, more = {}) =>
      make("input", {name, type: "number", value, min, max, step: "any", ...more});
    ask({title: "Spares", verb: "Say so",
      fields: [
        field("Kept by", choice("keep", [["yes", "the manager"], ["no", "hand"]],
          keep ? "yes" : "no")),
        field("Enough for, %", number("percent", 100 * probability, 50, 99.9999,
          {required: true})),
        field("Days of a repair", number("days", days, 0.001, 3650, {required: true})),
        field("Failures in a year, %", number("rate", rate === null ? "" : 100 * rate, 0, 10_000,
          {placeholder: "as measured"}))],
      says: form => form.keep === "yes" ? "The manager keeps free GPUs back until there are as many "
        + "spares as wanted, and lets them go when there are more."
        : "The manager makes no spares, and lets those go that it has made.",
      does: async form => {
        const round = value => Number((Number(value) / 100).toPrecision(12));
        await this.client.ask("PATCH", COMPOSITION, {Oem: {DxPU: {Spares: {
          Keep: form.keep === "yes", Probability: round(form.percent),
          RepairDays: Number(form.days), AnnualFailureRate: form.rate ? round(form.rate) : null}}}});
        this.view.tell("spares are as wanted from now on");
      }});
  }

  cancel(task) {
    ask({title: `Cancel task ${task.id}`, verb: "Cancel the task", danger: true,
      says: () => `Task ${task.id} (${task.what}) is given up, and what it has done is undone.`,
      does: async () => {
        await this.client.ask("DELETE", `${ROOT}/TaskService/Tasks/${task.id}`);
        this.view.tell(`task ${task.id} is given up`);
      }});
  }

  takeUp(request) {
    ask({title: `Take up request ${request.id}`, verb: "Take up",
      says: () => `${several(request.gpus)}, kept for host ${this.#name(request.host)}, will be `
        + "attached.",
      does: () => this.#post(`${REQUESTS}/${request.id}/Actions/DxPURequest.TakeUp`, {})});
  }

  lease(request) {
    const minutes = make("input", {name: "minutes", type: "number", min: 1, step: 1,
      placeholder: "without an end"});
    ask({title: `Lease of request ${request.id}`, verb: "Renew",
      fields: [field("Minutes", minutes)],
      says: form => `Host ${this.#name(request.host)} keeps ${several(request.gpus)} ${form.minutes
        ? `for ${form.minutes} min from now on` : "until somebody ends the request"}.`,
      does: async form => {
        await this.client.ask("PATCH", `${REQUESTS}/${request.id}`,
          {LeaseSeconds: form.minutes ? 60 * Number(form.minutes) : null});
        this.view.tell(`request ${request.id} has its lease`);
      }});
  }

  end(request) {
    const holds = request.phase === "holding" || request.phase === "starting";
    ask({title: `End request ${request.id}`, verb: "End the request", danger: true,
      says: () => holds ? `Host ${this.#name(request.host)} is asked to let go of ${
        several(request.gpus)}, and forced if it does not.`
        : `Request ${request.id} (${request.wants}) leaves the queue.`,
      word: () => holds ? this.#name(request.host) : null,
      does: async () => {
        await this.client.ask("DELETE", `${REQUESTS}/${request.id}`);
        this.view.tell(`request ${request.id} ends`);
      }});
  }
}
