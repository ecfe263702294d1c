/** Questions before a change. */

import {make, say} from "./dom.js";

let count = 0;

/** A dialog, which goes when it is closed; a modal one is closed by Esc, and the focus returns. */
export function open(title, name, isModal, ...content) {
  const id = `dialog-${++count}`;
  const made = make("dialog", {class: name, "aria-labelledby": id}, make("h2", {id}, title),
    ...content);
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  if (isModal) made.showModal();
  else made.show();
  return made;
}

/** A field of a form with its label. */
export function field(label, control) {
  return make("label", {class: "field"}, make("span", {}, label), control);
}

export function choice(name, options, value = options[0][0]) {
  const made = make("select", {name}, ...options.map(([key, text, off]) =>
    make("option", {value: key, disabled: Boolean(off)}, text)));
  made.value = value;
  return made;
}

/** Ask before a change.
 *
 *  `says`, `word`: from the form, a sentence of what will happen, and a word that must be typed
 *  first, or null. `does`: from the form, the change, which may raise ManagerError; the error is
 *  shown, and the dialog stays. */
export function ask({title, fields = [], says, word = () => null, verb, danger = false, does}) {
  const sentence = make("p", {class: "says"});
  const typed = make("input", {name: "word", autocomplete: "off", spellcheck: "false"});
  const prompt = make("span");
  const guard = make("label", {class: "field"}, prompt, typed);
  const wrong = make("p", {class: "error", role: "alert"});
  const go = make("button", {class: danger ? "go danger" : "go"}, verb);
  const leave = make("button", {type: "button", onclick: () => made.close()}, "Leave it");
  const form = make("form", {method: "dialog"}, ...fields, sentence, guard, wrong,
    make("div", {class: "buttons"}, leave, go));
  const value = () => Object.fromEntries(new FormData(form));
  const look = () => {
    const needed = word(value());
    say(sentence, says(value()));
    guard.hidden = needed === null;
    say(prompt, needed === null ? "" : `Type ${needed} to go on`);
    go.disabled = needed !== null && typed.value.trim() !== needed;
  };
  form.addEventListener("input", look);
  form.addEventListener("submit", async event => {
    event.preventDefault();
    say(wrong, "");
    go.disabled = true;
    try {
      await does(value());
      made.close();
    } catch (error) {
      say(wrong, error.message);
      look();
      go.focus();
    }
  });
  const made = open(title, "question", true, form);
  look();
  (form.querySelector("select, input:not([name=word])") ?? (danger ? leave : go)).focus();
  return made;
}
