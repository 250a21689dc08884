// The page keeps itself up to date, shows commands before they are sent, counts time and knows some keys.
// Without this script everything can be read and sent all the same.
"use strict";

const body = document.body;
const root = body.dataset.root;
body.classList.add("scripted");

// ---- news from the server: parts of the page, replaced where they differ

let source = null;

function connect() {
  if (!("page" in body.dataset) || source || document.hidden) return;
  const query = new URLSearchParams({ page: body.dataset.page, seen: body.dataset.seen });
  source = new EventSource(`${root}live?${query}`);
  source.addEventListener("open", () => link(""));
  source.addEventListener("part", (event) => {
    const { id, html } = JSON.parse(event.data);
    const place = document.getElementById(`part-${id}`);
    if (place) {
      const fresh = document.createElement("template");
      fresh.innerHTML = html;
      merge(place, fresh.content);
      count();
      follow();
      wire(place);
    }
  });
  source.addEventListener("title", (event) => {
    const { title, waiting } = JSON.parse(event.data);
    document.title = `${waiting ? `(${waiting}) ` : ""}${title} · ${body.dataset.project} · Capsule`;
    document.querySelector("h1").textContent = title;
  });
  source.addEventListener("news", (event) => {
    document.getElementById("news").textContent = JSON.parse(event.data).text;
  });
  source.addEventListener("error", () => link("Not connected: what is shown may be old"));
}

function link(words) {
  const place = document.getElementById("link");
  place.classList.toggle("lost", Boolean(words));
  if (words) {
    place.dataset.was ??= place.textContent;
    place.textContent = words;
  } else if (place.dataset.was) {
    place.textContent = place.dataset.was;
  }
}

// A browser has few connections to one server: a tab that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && source) {
    source.close();
    source = null;
    body.dataset.seen = "";
  }
  connect();
});

// ---- replacing: what is the same stays where it is, with its focus, its selection and what was typed

function merge(old, fresh) {
  const kept = new Map();
  for (const child of old.children) if (child.id) kept.set(child.id, child);
  let at = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const known = node.id && kept.get(node.id);
    if (known && known !== at && known.parentNode === old) old.insertBefore(known, at);
    const here = known || at;
    if (here && alike(here, node)) {
      at = here.nextSibling;
      update(here, node);
    } else {
      old.insertBefore(node, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.id || "") === (other.id || "");
}

function update(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.isEqualNode(fresh) || (old.matches("form") && isUsed(old))) return;
  if (old.matches("time[data-ago]") && old.dateTime === fresh.dateTime) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.matches("details"))) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !(name === "open" && old.matches("details"))) old.setAttribute(name, value);
  }
  merge(old, fresh);
}

function isUsed(form) {
  if (form.contains(document.activeElement)) return true;
  return [...form.elements].some((one) => "defaultValue" in one && one.type !== "hidden" && one.value !== one.defaultValue);
}

// ---- time that goes by

function count() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const seconds = Math.max(0, Math.round((now - Date.parse(time.dateTime)) / 1000));
    if (Number.isNaN(seconds)) continue;
    const words = inWords(seconds);
    if (time.textContent !== words) {
      time.title ||= time.textContent;
      time.textContent = words;
    }
  }
}

function inWords(seconds) {
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

// ---- output that grows: its end stays in view, unless somebody reads further up

function follow() {
  for (const log of document.querySelectorAll("[data-follow]")) {
    if (log.dataset.left !== "1") log.scrollTop = log.scrollHeight;
    log.onscroll = () => {
      log.dataset.left = log.scrollHeight - log.scrollTop - log.clientHeight > 40 ? "1" : "0";
    };
  }
}

// ---- the command that a form is, as it is typed; the server makes it, as it makes the one that is run

const waits = new WeakMap();

async function preview(form) {
  try {
    const answer = await fetch(form.dataset.preview, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const line = answer.ok ? await answer.text() : "";
    if (line) form.querySelector(".command .words").textContent = line;
  } catch {
    link("Not connected: what is shown may be old");
  }
}

function wire(place) {
  for (const form of place.querySelectorAll("form[data-preview]")) {
    if (form.dataset.wired) continue;
    form.dataset.wired = "1";
    form.addEventListener("input", () => {
      clearTimeout(waits.get(form));
      waits.set(form, setTimeout(() => preview(form), 150));
    });
    if (isUsed(form)) preview(form); // what was typed before this script was there, or is kept on the way back
  }
}

// ---- keys

const PLACES = { i: "", b: "board", t: "items", r: "runs", m: "merges", c: "commands" };
let before = "";

function shortcuts() {
  return localStorage.getItem("shortcuts") !== "off";
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (typing && event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.target.form?.requestSubmit();
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !shortcuts()) return;
  const pair = before === "g" && event.key in PLACES;
  before = event.key;
  if (pair) location.href = root + PLACES[event.key];
  else if (event.key === "?") location.href = `${root}keys`;
  else if (event.key === "n") location.href = `${root}command/add`;
  else if (event.key === "/") (document.getElementById("q") ?? document.getElementById("find")).focus();
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else return;
  event.preventDefault();
});

function step(by) {
  const stops = [...document.querySelectorAll("main .question h2 a, main .ticket a, main .list tbody th a, main .run h2 a")];
  const at = stops.indexOf(document.activeElement);
  stops[Math.min(stops.length - 1, Math.max(0, at + by))]?.focus();
}

const choice = document.getElementById("shortcuts");
if (choice) {
  choice.checked = shortcuts();
  choice.addEventListener("change", () => localStorage.setItem("shortcuts", choice.checked ? "on" : "off"));
}

// ---- the beginning

wire(document);
count();
follow();
setInterval(count, 1000);
connect();
