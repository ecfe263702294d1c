/** The pool as the manager says: read once, then what events name is read again. */

import {BLOCKS, COMPOSITION, ManagerError, REQUESTS, ROOT} from "./client.js";

/** States of a GPU with the letters of `dxpu top`. */
export const LETTERS = {
  free: "f", spare: "s", reserved: "r", attaching: "+", attached: "A", draining: "-",
  quarantined: "q", failed: "X", absent: "·"};

/** Collections: address, and how a member is kept. */
const KINDS = {
  boxes: [`${ROOT}/Chassis`, boxOf], hosts: [`${ROOT}/Systems`, hostOf],
  gpus: [BLOCKS, gpuOf], tasks: [`${ROOT}/TaskService/Tasks`, taskOf],
  requests: [REQUESTS, requestOf],
  subscriptions: [`${ROOT}/EventService/Subscriptions`, subscriptionOf]};
/** Kinds of the addresses that events name. */
const NAMED = [[BLOCKS, "gpus"], [KINDS.tasks[0], "tasks"], [REQUESTS, "requests"],
  [KINDS.subscriptions[0], "subscriptions"]];
const SWITCHES = `${ROOT}/Fabrics/DxPU/Switches/`;
/** Of more members than so many, all are read again at once. */
const SINGLE = 8;
/** Milliseconds from an event until what it names is read, so that a storm is read at once. */
const GATHER = 50;
/** Milliseconds between two looks at who answers: silence is no change of the records, so that no
 *  event tells it; and between two attempts to reach the manager, at least and at most. */
const LOOK = 60_000, AGAIN = 500, AGAIN_AT_MOST = 5_000;
/** Milliseconds between two looks at a GPU that is being attached and shown at the side: what is
 *  seen of it is no change of the records, either. */
const WATCH = 1_000;
const EVENTS = 200;

const last = link => link["@odata.id"].split("/").at(-1);

function nodeOf(body) {
  const own = body.Oem.DxPU;
  return {id: body.Id, label: own.Label, name: own.Label || body.Id, closed: own.Closed,
    number: own.NodeNumber, address: own.Address,
    dead: own.Paths.filter(path => !path.Link).map(path => path.Path), paths: own.Paths.length};
}

function boxOf(body) {
  return {...nodeOf(body), kind: body.Oem.DxPU.Kind, slots: body.Oem.DxPU.Slots};
}

function hostOf(body) {
  return {...nodeOf(body), ports: body.Oem.DxPU.Ports};
}

function gpuOf(body) {
  const own = body.Oem.DxPU;
  return {id: body.Id, state: own.State, cause: own.Cause, since: own.Since, model: own.Model,
    box: own.Box, slot: own.Slot, host: own.Host, port: own.Port, path: own.Path, task: own.Task,
    request: own.Request, broken: own.Broken, serial: own.SerialNumber, evidence: own.Evidence, windows: own.WindowsSince,
    confirmed: own.Confirmed, missing: own.Missing, missingSince: own.MissingSince,
    missingUntil: own.MissingUntil};
}

function taskOf(body) {
  const said = body.Messages[0].Message;
  return {id: body.Id, what: body.Description, state: body.TaskState, began: body.StartTime,
    ended: body.EndTime ?? null, failed: body.TaskStatus !== "OK",
    said: said === body.Description ? "" : said};
}

function requestOf(body) {
  return {id: body.Id, host: body.Host, wants: body.Description, phase: body.Phase,
    priority: body.Priority, until: body.Until, said: body.Explanation || body.Reason || "",
    gpus: body.Links.ResourceBlocks.map(last)};
}

function sparesOf(body) {
  const own = body.Oem.DxPU.Spares;
  return {keep: own.Keep, probability: own.Probability, days: own.RepairDays,
    rate: own.AnnualFailureRate, models: own.Models.map(one => ({
      model: one.Model ?? "", gpus: one.Gpus, failures: one.Failures, years: one.GpuYears,
      rate: one.AnnualFailureRate, inRepair: one.InRepair, wanted: one.Wanted, held: one.Held,
      covered: one.Probability}))};
}

function subscriptionOf(body) {
  return {id: body.Id, to: body.Destination, suspended: body.Status.State === "Disabled"};
}

/** What is known of the pool. `changed` is called after each change, with nothing more than that;
 *  whoever shows the pool compares. */
export class Pool {
  constructor(client, changed) {
    this.client = client;
    this.changed = changed;
    for (const kind in KINDS) this[kind] = new Map();
    this.byHost = new Map();
    this.events = [];
    this.unreachable = {};
    /** How many spares are wanted and held, by model; null: not known yet. */
    this.spares = null;
    /** The GPU that the user looks at, or null. */
    this.watched = null;
    /** What is wrong, in lines. */
    this.wrong = [];
    /** "live", "lost" or "begins", and since when. */
    this.link = {state: "begins", since: Date.now(), said: ""};
    this.newest = 0;
    /** Of each kind the members to read again; null: all. */
    this.stale = new Map();
    this.run = null;
  }

  /** The slots of a box: GPUs, or null. */
  slotsOf(box) {
    return Array.from({length: box.slots}, (_, n) => this.gpus.get(`${box.id}.${n + 1}`) ?? null);
  }

  /** GPUs of a host, by port. */
  gpusOf(host) {
    return this.byHost.get(host.id) ?? [];
  }

  /** What is unusual at a node, in words. */
  marksOf(node) {
    return [this.unreachable[node.id] && "does not answer", node.closed && "closed",
      ...node.dead.map(path => `path ${path} has no link`)].filter(Boolean).join(", ");
  }

  /** Whether hosts can take several paths to boxes. */
  get hasPaths() {
    return [...this.boxes.values()].some(box => box.paths > 1);
  }

  get models() {
    return [...new Set([...this.gpus.values()].map(gpu => gpu.model).filter(Boolean))].sort();
  }

  /** Follow the pool until the user has to log in; raises ManagerError with status 401 then. */
  async follow() {
    const run = this.run = {};
    this.#looks(run);
    this.#watches(run);
    let wait = AGAIN;
    try {
      for (;;) {
        try {
          await this.#live(() => { wait = AGAIN; });
        } catch (error) {
          if (!(error instanceof ManagerError) || error.status === 401) throw error;
          if (this.link.state !== "lost") this.link = {state: "lost", since: Date.now(), said: ""};
          this.link.said = error.message;
          this.changed();
        }
        await new Promise(resolve => setTimeout(resolve, wait));
        wait = Math.min(wait * 2, AGAIN_AT_MOST);
      }
    } finally {
      this.run = null;
    }
  }

  async #live(opened) {
    // What the records say is read after the stream has begun, so that no change is missed.
    const service = await this.client.get(`${ROOT}/EventService`);
    const newest = service.Oem.DxPU.Newest;
    const had = this.newest <= newest ? this.newest : 0;
    if (!had) this.events = [];
    const stop = new AbortController();
    this.fault = error => stop.abort(error);
    const stream = this.client.events(had || Math.max(0, newest - EVENTS / 2), stop, () => {
      opened();
      for (const kind of [...Object.keys(KINDS), "health", "spares"]) this.stale.set(kind, null);
      this.#read();
    });
    try {
      for await (const event of stream) this.#came(event, newest);
    } finally {
      stop.abort();
    }
  }

  #came(event, old) {
    const number = Number(event.Id);
    this.newest = Math.max(this.newest, number);
    const one = event.Events[0];
    this.events.unshift({id: number, time: one.EventTimestamp, said: one.Message});
    this.events.length = Math.min(this.events.length, EVENTS);
    if (number > old) {
      this.#touch(one);
      this.#read();
    }
    this.changed();
  }

  /** Note what an event makes old. */
  #touch(event) {
    const address = event.OriginOfCondition?.["@odata.id"] ?? "";
    const kind = event.MessageId.split(".").at(-1);
    for (const [place, name] of NAMED) {
      if (address.startsWith(`${place}/`)) this.#old(name, address.slice(place.length + 1));
    }
    if (address.startsWith(SWITCHES)) {
      const id = address.slice(SWITCHES.length);
      if (this.boxes.has(id)) this.#old("boxes", id);
      else if (this.hosts.has(id)) this.#old("hosts", id);
      else ["boxes", "hosts"].forEach(name => this.#old(name, null));
    } else if (!address) {
      // A record has gone.
      const gone = {TaskChanged: "tasks", RequestChanged: "requests",
        SubscriptionChanged: "subscriptions", GpuChanged: "gpus"}[kind];
      if (gone) this.#old(gone, null);
    }
    if (["GpuChanged", "ServiceChanged"].includes(kind)) this.stale.set("spares", null);
    if (kind === "AccountChanged" && this.client.session) this.stale.set("user", null);
    if (["NodeReach", "NodeChanged", "Stranger"].includes(kind)) this.stale.set("health", null);
    // What a request waits for depends on everything.
    for (const request of this.requests.values()) {
      if (request.phase === "waiting") this.#old("requests", request.id);
    }
  }

  #old(kind, id) {
    const ids = this.stale.get(kind);
    if (id === null || (ids && ids.size >= SINGLE)) this.stale.set(kind, null);
    else if (ids) ids.add(id);
    else if (ids === undefined) this.stale.set(kind, new Set([id]));
  }

  /** Read what is old, soon, and not twice at a time. */
  async #read() {
    if (this.reading) return;
    this.reading = true;
    try {
      while (this.stale.size) {
        await new Promise(resolve => setTimeout(resolve, this.link.state === "live" ? GATHER : 0));
        const stale = [...this.stale];
        this.stale.clear();
        await Promise.all(stale.map(([kind, ids]) => this.#readKind(kind, ids)));
        this.#joined();
        if (this.link.state !== "live") this.link = {state: "live", since: Date.now(), said: ""};
        this.changed();
      }
    } catch (error) {
      this.fault?.(error);
    } finally {
      this.reading = false;
    }
  }

  async #readKind(kind, ids) {
    if (kind === "user") {
      if (!await this.client.identify()) throw new ManagerError(401, "log in again");
      return;
    }
    if (kind === "spares") {
      this.spares = sparesOf(await this.client.get(COMPOSITION));
      return;
    }
    if (kind === "health") {
      const health = await this.client.health();
      this.unreachable = health.unreachable;
      this.wrong = [...health.wrong, ...Object.entries(health.strangers).map(
        ([mac, why]) => `stranger ${mac}: ${why}`)];
      return;
    }
    const [place, of] = KINDS[kind];
    if (ids === null) {
      this[kind] = new Map((await this.client.members(place)).map(of).map(one => [one.id, one]));
      return;
    }
    await Promise.all([...ids].map(async id => {
      try {
        this[kind].set(id, of(await this.client.get(`${place}/${id}`)));
      } catch (error) {
        if (error.status !== 404) throw error;
        this[kind].delete(id);
      }
    }));
  }

  #joined() {
    this.byHost = new Map();
    for (const gpu of this.gpus.values()) {
      if (!gpu.host) continue;
      if (!this.byHost.has(gpu.host)) this.byHost.set(gpu.host, []);
      this.byHost.get(gpu.host).push(gpu);
    }
    for (const held of this.byHost.values()) held.sort((a, b) => a.port - b.port);
  }

  /** Read a GPU that is being attached, while the user looks at it. */
  async #watches(run) {
    while (this.run === run) {
      await new Promise(resolve => setTimeout(resolve, WATCH));
      if (this.link.state !== "live" || document.hidden
        || this.gpus.get(this.watched)?.state !== "attaching") continue;
      this.#old("gpus", this.watched);
      this.#read();
    }
  }

  /** A store that cannot be written has no events. */
  async #looks(run) {
    while (this.run === run) {
      await new Promise(resolve => setTimeout(resolve, LOOK));
      if (this.link.state === "live" && !document.hidden) {
        this.stale.set("health", null);
        this.#read();
      }
    }
  }
}
