// The few things that every part does with the document.
import { ask } from "./session.js";

export function at(id) {
  return document.getElementById(id);
}

export function make(tag, className = "", text = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

// Writes only what differs, so that nothing is laid out anew, and a selection stays.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A row of buttons of which one is pressed.
export function choice(group, options, chosen, choose) {
  const buttons = options.map(([value, text]) => {
    const button = make("button", "", text);
    button.type = "button";
    button.setAttribute("aria-pressed", String(value === chosen));
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose(value);
    });
    return button;
  });
  group.replaceChildren(...buttons);
}

export function themeButton(changed) {
  const button = at("theme");
  const media = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (media.matches ? "dark" : "light")) === "dark";
  const show = () => { say(button, dark() ? "Light" : "Dark"); button.setAttribute("aria-label", `Change to ${dark() ? "light" : "dark"} colours`); };
  button.addEventListener("click", () => {
    const theme = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try { localStorage.setItem("theme", theme); } catch { /* it holds for this page only */ }
    show();
    changed();
  });
  media.addEventListener("change", () => { show(); changed(); });
  show();
}

export async function post(command, body) {
  const answer = await ask(`/api/do/${command}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  if (!answer.ok) {
    const text = await answer.text();
    let said = text;
    try { said = JSON.parse(text).error; } catch { /* it is plain text */ }
    alert(said);
  }
  return answer.ok;
}
