/** The page of a pool: what is where on the screen, and when it is drawn. */

import {Actions} from "./actions.js";
import {Client, ManagerError} from "./client.js";
import {Detail} from "./detail.js";
import {find, make, say, set} from "./dom.js";
import {Hosts} from "./hosts.js";
import {Lines} from "./lines.js";
import {Panels, clock} from "./panels.js";
import {Pool} from "./pool.js";
import {Racks} from "./racks.js";

/** Up to so many GPUs, slots are large. */
const LARGE = 64;
/** Milliseconds for which a good message is seen. */
const SEEN = 8_000;

const client = new Client();

/** What the user looks at. */
const view = {
  words: [], states: new Set(), selected: new Set(), allLines: false,
  /** GPUs and hosts next to what is pointed at. */
  near: {gpus: new Set(), hosts: new Set()},
  /** Tasks that this user has begun, with what they do. */
  own: new Map(),

  fits(...texts) {
    const text = texts.join(" ").toLowerCase();
    return this.words.every(word => text.includes(word));
  },
  filter(state) {
    if (!this.states.delete(state)) this.states.add(state);
    draw();
  },
  select(gpu) {
    if (!client.mayChange || !pool.gpus.has(gpu)) return;
    if (!this.selected.delete(gpu)) this.selected.add(gpu);
    draw();
  },
  show(kind, id) {
    detail.show(kind, id);
    point(detail.element);
  },
  follow(task, what) {
    this.own.set(task, what);
    this.tell(`task ${task}: ${what}`);
  },
  /** A line for the user; a bad one stays until it is closed. */
  tell(text, isBad = false) {
    const said = find("#said");
    clearTimeout(this.timer);
    said.replaceChildren(make("span", {}, text), make("button", {type: "button",
      "aria-label": "Close the message", onclick: () => said.replaceChildren()}, "×"));
    set(said, "class", isBad ? "bad" : "good");
    if (!isBad) this.timer = setTimeout(() => said.replaceChildren(), SEEN);
  },
};

let drawing = false;

/** Draw with the next frame, however often something changes before. */
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    render();
  });
}

const pool = new Pool(client, draw);
const actions = new Actions(client, pool, view);
const detail = new Detail(pool, actions);
const racks = new Racks(find("#racks"), pool, view);
const hosts = new Hosts(find("#hosts"), pool, view);
const lines = new Lines(find("#lines"), pool, view);
const panels = new Panels(pool, view, actions);

function render() {
  const {state, since, said} = pool.link;
  const link = find("#link");
  set(link, "class", state);
  say(link, {begins: "reading the pool …", live: "live", lost:
    `lost at ${clock(since)}: ${said}; tries again`}[state]);
  set(document.body, "data-link", state);
  set(document.body, "data-size", pool.gpus.size <= LARGE ? "large" : "small");
  const trouble = find("#trouble");
  say(trouble, pool.wrong.slice(0, 3).join("; ")
    + (pool.wrong.length > 3 ? `; and ${pool.wrong.length - 3} more` : ""));
  trouble.hidden = pool.wrong.length === 0;
  for (const one of document.querySelectorAll("[data-changes]")) one.hidden = !client.mayChange;
  say(find("#user"), client.user?.name ? `${client.user.name} (${client.user.role})`
    : "this machine");
  racks.render();
  hosts.render();
  panels.render();
  chosen();
  detail.render();
  lines.render();
  ended();
  keepFocus();
}

/** What had the focus last, and the part of the page in which it was. */
const last = {element: null, part: null};

/** If what had the focus has gone, the focus stays as near as can be. */
function keepFocus() {
  const {element, part} = last;
  const now = document.activeElement;
  if (!element || element.getClientRects().length || (now !== document.body && now !== element)) {
    return;
  }
  const near = part?.getClientRects().length
    ? part.matches(".scroll") ? part : part.querySelector("button.back, button") : null;
  (near ?? detail.dialog?.querySelector("button.back") ?? find("#racks [tabindex='0']"))?.focus();
}

/** Tell the end of tasks that this user has begun. */
function ended() {
  for (const [id, what] of view.own) {
    const task = pool.tasks.get(id);
    if (!task?.ended) continue;
    view.own.delete(id);
    view.tell(task.failed ? `task ${id} failed: ${task.said}` : `done: ${what}`, task.failed);
  }
}

/** What can be done with selected GPUs. */
function chosen() {
  const there = [...view.selected].map(id => pool.gpus.get(id)).filter(Boolean);
  const bar = find("#chosen");
  bar.hidden = there.length === 0;
  const ids = there.map(gpu => gpu.id);
  if (bar.dataset.has === there.map(gpu => gpu.id + gpu.state).join()) return;
  bar.dataset.has = there.map(gpu => gpu.id + gpu.state).join();
  const button = (name, isOn, does) => isOn
    ? make("button", {type: "button", onclick: () => { does(); }}, name) : null;
  const owners = new Set(there.map(gpu => gpu.host));
  bar.replaceChildren(...[
    make("span", {}, `${ids.length} selected`),
    button("Attach…", there.every(gpu => ["free", "spare", "reserved"].includes(gpu.state)),
      () => actions.attach(ids)),
    button("Detach…", owners.size === 1 && there.every(gpu => gpu.state === "attached"),
      () => actions.detach(there[0].host, ids)),
    button("Select none", true, selectNone)].filter(Boolean));
}

function selectNone() {
  view.selected.clear();
  draw();
}

/** Note what is next to the element that is pointed at or has the focus, or else to what the dialog
 *  at the side shows. */
function point(element) {
  const at = element?.closest?.("[data-gpu], [data-box], [data-host]") ?? detail.element;
  const gpus = new Set(), near = new Set();
  const {gpu, box, host} = at?.dataset ?? {};
  for (const one of pool.gpus.values()) {
    if (one.id !== gpu && one.box !== box && (!host || one.host !== host)) continue;
    gpus.add(one.id);
    if (one.host) near.add(one.host);
  }
  if (host) near.add(host);
  view.near = {gpus, hosts: near};
  draw();
}

function listen() {
  const map = find("#map");
  map.addEventListener("pointerover", event => point(event.target));
  map.addEventListener("pointerleave", () => point(document.activeElement));
  map.addEventListener("focusin", event => point(event.target));
  map.addEventListener("focusout", () => point(null));
  document.addEventListener("focusin", event => {
    last.element = event.target;
    last.part = event.target.closest(".scroll, #chosen, dialog.detail");
  });
  document.addEventListener("close", draw, true);
  new ResizeObserver(draw).observe(map);
  const search = find("#search");
  search.addEventListener("input", () => {
    view.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    draw();
  });
  search.addEventListener("keydown", event => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      find("#racks [tabindex='0']")?.focus();
    }
  });
  document.addEventListener("keydown", event => {
    if (find("dialog.question")) return;
    if (event.key === "Escape") {
      if (detail.dialog) detail.close();
      else selectNone();
    } else if (event.key === "/" && !event.target.matches("input")) {
      event.preventDefault();
      search.focus();
    }
  });
  find("#all-lines").addEventListener("change", event => {
    view.allLines = event.target.checked;
    draw();
  });
  find("#log-out").addEventListener("click", () => client.logOut().catch(() => {}).then(
    () => location.reload()));
  find("#log-in form").addEventListener("submit", async event => {
    event.preventDefault();
    const form = event.target, wrong = form.querySelector(".error");
    say(wrong, "");
    try {
      await client.logIn(form.elements.name.value, form.elements.password.value);
      form.reset();
      begin();
    } catch (error) {
      say(wrong, error.message);
      form.elements.password.focus();
    }
  });
}

function stage(name) {
  set(document.body, "data-view", name);
  find("#log-in").hidden = name !== "log-in";
  find("#pool").hidden = name !== "pool";
  find("#log-out").hidden = !client.session;
  detail.close(false);
  find("dialog.question")?.close();
}

/** Show the pool to whoever may see it, and a form to others. */
async function begin() {
  for (;;) {
    try {
      if (!await client.identify()) break;
      stage("pool");
      await pool.follow();
    } catch (error) {
      if (!(error instanceof ManagerError)) {
        set(find("#link"), "class", "lost");
        say(find("#link"), `the page has a fault: ${error.message}; load it again`);
        throw error;
      }
      if (error.status === 401) continue;
      say(find("#link"), error.message);
      await new Promise(resolve => setTimeout(resolve, 1_000));
    }
  }
  stage("log-in");
  say(find("#link"), "");
  find("#log-in input").focus();
}

listen();
begin();
