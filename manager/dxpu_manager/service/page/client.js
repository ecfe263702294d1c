/** Requests to the manager that has served this page, and its stream of events. */

export const ROOT = "/redfish/v1";
export const REQUESTS = `${ROOT}/CompositionService/Oem/DxPU/Requests`;
export const COMPOSITION = `${ROOT}/CompositionService`;
export const BLOCKS = `${ROOT}/CompositionService/ResourceBlocks`;

const KEPT = "dxpu-session";
/** Milliseconds without a byte, after which the stream counts as lost; the manager says every
 *  15 s that it is there. */
const SILENT = 40_000;

/** An answer that is an error, or no answer (status 0); the message is a line for people. */
export class ManagerError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** A user's way to the manager. The token is in the memory of this tab, and in no cookie, so that
 *  no other site can use it. */
export class Client {
  constructor() {
    this.session = JSON.parse(sessionStorage.getItem(KEPT));
    /** Name and role of the user; null: nobody has logged in. */
    this.user = null;
  }

  get mayChange() {
    return this.user !== null && this.user.role !== "ReadOnly";
  }

  #headers(more) {
    return this.session ? {"X-Auth-Token": this.session.token, ...more} : more;
  }

  async #fetch(path, options) {
    try {
      return await fetch(path, {cache: "no-store", credentials: "omit", ...options});
    } catch {
      throw new ManagerError(0, "the manager does not answer");
    }
  }

  /** Ask for something; the content of the answer. Raises ManagerError. */
  async ask(method, path, body) {
    const headers = this.#headers(body === undefined ? {} : {"Content-Type": "application/json"});
    const answer = await this.#fetch(path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body)});
    return this.#content(answer);
  }

  async #content(answer) {
    let content = null;
    try {
      const text = await answer.text();
      content = text ? JSON.parse(text) : null;
    } catch {
      throw new ManagerError(0, "the manager's answer has broken off");
    }
    if (!answer.ok) {
      const said = content?.error?.["@Message.ExtendedInfo"]?.[0]?.Message;
      throw new ManagerError(answer.status, said ?? `the manager answers ${answer.status}`);
    }
    return content;
  }

  get(path) {
    return this.ask("GET", path);
  }

  /** All members of a collection. */
  async members(path, more = "") {
    return (await this.get(`${path}?$expand=.${more}`)).Members;
  }

  /** What is wrong in the pool; an answer also if the manager cannot fulfil wishes. */
  async health() {
    const answer = await this.#fetch("/readyz", {});
    return answer.json().catch(() => {
      throw new ManagerError(0, "the manager does not answer");
    });
  }

  /** Find out who the user is, by the session of this tab or by being at this machine; false: a
   *  log-in is needed. */
  async identify() {
    try {
      if (this.session) {
        const shown = await this.get(this.session.address);
        this.user = {name: shown.UserName, role: shown.Roles[0]};
      } else {
        await this.get(`${ROOT}/Managers`);
        this.user = {name: "", role: "Administrator"};
      }
      return true;
    } catch (error) {
      if (error.status === 0) throw error;
      const again = this.session !== null;
      this.forget();
      return again ? this.identify() : false;
    }
  }

  async logIn(name, password) {
    const answer = await this.#fetch(`${ROOT}/SessionService/Sessions`, {
      method: "POST", headers: {"Content-Type": "application/json"},
      body: JSON.stringify({UserName: name, Password: password})});
    const shown = await this.#content(answer);
    this.session = {token: answer.headers.get("X-Auth-Token"), address: shown["@odata.id"]};
    sessionStorage.setItem(KEPT, JSON.stringify(this.session));
  }

  async logOut() {
    try {
      await this.ask("DELETE", this.session.address);
    } finally {
      this.forget();
    }
  }

  forget() {
    this.session = this.user = null;
    sessionStorage.removeItem(KEPT);
  }

  /** Events with numbers above `after`, until the stream breaks off or `stop` is aborted; then
   *  ManagerError, or the reason of `stop`. `opened` is called when the manager begins to send. */
  async *events(after, stop, opened) {
    const silent = () => stop.abort(new ManagerError(0, "the manager is silent"));
    let watch = setTimeout(silent, SILENT);
    try {
      const answer = await this.#fetch(`${ROOT}/EventService/SSE`, {
        headers: this.#headers({Accept: "text/event-stream", "Last-Event-ID": String(after)}),
        signal: stop.signal});
      if (!answer.ok) await this.#content(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      opened();
      for (let text = "";;) {
        const {done, value} = await reader.read().catch(() => ({done: true}));
        if (stop.signal.aborted) throw stop.signal.reason;
        if (done) throw new ManagerError(0, "the stream of events has broken off");
        clearTimeout(watch);
        watch = setTimeout(silent, SILENT);
        const parts = (text + value).split("\n\n");
        text = parts.pop();
        for (const part of parts) {
          const data = part.split("\n").find(line => line.startsWith("data: "));
          if (data) yield JSON.parse(data.slice(6));
        }
      }
    } finally {
      clearTimeout(watch);
    }
  }
}
