// The page around the chat: language, theme, settings, panels, keys, and what begins when it is loaded.
const isNarrow = () => matchMedia("(max-width: 60rem)").matches;
const isDark = () => (settings.theme ? settings.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
// Composition of Korean, Chinese or Japanese also ends with Enter: that one does not send. Some browsers mark it by code 229.
const isSendKey = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229;

function dress() {
  document.documentElement.lang = tongue;
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  for (const one of document.querySelectorAll("[data-say]")) one.textContent = say(one.dataset.say);
  for (const one of document.querySelectorAll("[data-label]")) {
    one.setAttribute("aria-label", say(one.dataset.label));
    if (one.tagName === "BUTTON") one.title = say(one.dataset.label);
  }
  sayFiles();
  at("ask").placeholder = say("ask");
  at("find").placeholder = say("find");
  at("language").textContent = tongue === "en" ? "한국어" : "English";
  at("language").lang = tongue === "en" ? "ko" : "en";
  at("theme").textContent = say(isDark() ? "light" : "dark");
  for (const parts of elements.values()) parts.callsShown = "";
  draw();
  drawChats();
  drawFiles();
}
// Pictures are offered where the chosen model reads them.
function sayFiles() {
  at("attach").title = say(canSee() ? "attachboth" : "attach");
  at("attach").setAttribute("aria-label", at("attach").title);
  at("choose").setAttribute("aria-label", at("attach").title);
  at("drop").textContent = say(canSee() ? "dropboth" : "drop");
}
function turn() {
  settings.theme = isDark() ? "light" : "dark";
  keepSettings();
  dress();
}
function translate() {
  tongue = settings.tongue = tongue === "en" ? "ko" : "en";
  keepSettings();
  dress();
}

const notices = new Map();
function notice(kind, text) {
  if (text) notices.set(kind, text);
  else notices.delete(kind);
  at("notices").replaceChildren(...[...notices].map(([name, words]) => make("p", {}, words, " ",
    make("button", { type: "button", className: "plain", onclick: () => notice(name, "") }, say("close")))));
}
function showState() {
  const isWriting = Boolean(streamOfShown());
  at("stop").hidden = !isWriting;
  at("send").hidden = isWriting;
  at("state").textContent = isGone ? say("gone") : isWriting ? say("writing") : "";
  at("state").classList.toggle("wrong", isGone);
}

function openPanel(isOpen, isKept) {
  document.body.classList.toggle("panel", isOpen);
  at("panelbutton").setAttribute("aria-expanded", String(isOpen));
  at("panel").inert = !isOpen;
  if (isOpen && isNarrow()) openChats(false);
  if (isKept && !isNarrow()) settings.panel = isOpen ? "open" : "closed", keepSettings();
  at("shade").hidden = !(isNarrow() && (isOpen || document.body.classList.contains("list")));
}
function openChats(isOpen) {
  document.body.classList.toggle("list", isOpen);
  at("listbutton").setAttribute("aria-expanded", String(isOpen));
  at("list").inert = !isOpen;
  if (isOpen && isNarrow()) openPanel(false);
  at("shade").hidden = !(isNarrow() && (isOpen || document.body.classList.contains("panel")));
}
function arrange() {
  openChats(!isNarrow());
  openPanel(!isNarrow() && settings.panel !== "closed");
}

function fitAsk() {
  const ask = at("ask");
  ask.style.height = "auto";
  ask.style.height = Math.min(ask.scrollHeight + 2, innerHeight * 0.4) + "px";
}

function showSettings() {
  for (const name of kInputs) {
    const input = at(name);
    if (input.type === "checkbox") input.checked = settings[name];
    else input.value = settings[name];
  }
}
const kInputs = ["system", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "max_tokens", "seed", "think", "tools", "odds", "history"];
function bindSettings() {
  for (const name of kInputs) {
    at(name).addEventListener("input", (event) => {
      const input = event.target;
      if (input.type === "checkbox") settings[name] = input.checked;
      else if (input.checkValidity()) settings[name] = input.value;
      keepSettings();
    });
  }
  at("model").addEventListener("change", () => { settings.model = at("model").value; keepSettings(); sayFiles(); });
  // Models and adapters may have changed since the page was loaded.
  at("model").addEventListener("focus", () => readModels().catch(() => {}));
  at("key").value = keptKey();
  at("keyrow").hidden = !at("key").value;
  at("key").addEventListener("change", () => { keptKey(at("key").value); look(); });
  at("reset").addEventListener("click", () => {
    const { theme, tongue: language, panel, model } = settings;
    Object.assign(settings, kDefaults, { theme, tongue: language, panel, model });
    keepSettings();
    showSettings();
  });
}

function bindKeys() {
  at("ask").addEventListener("keydown", (event) => {
    if (isSendKey(event)) event.preventDefault(), sendMessage();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing) {
      if (!at("card").hidden) hideOdds();
      if (!stopWriting() && isNarrow()) openPanel(false), openChats(false);
    }
    if (!event.altKey || event.ctrlKey || event.metaKey) return;
    const action = { KeyN: freshChat, KeyT: turn, KeyL: translate, KeyK: () => { openChats(true); at("find").focus(); } }[event.code];
    if (action) event.preventDefault(), action();
  });
  // Probabilities: hover, focus, and arrows between tokens.
  const messages = at("messages");
  messages.addEventListener("focusin", (event) => { if (event.target.odds) showOdds(event.target); });
  messages.addEventListener("mouseover", (event) => { if (event.target.odds) showOdds(event.target); else hideOdds(); });
  messages.addEventListener("mouseleave", hideOdds);
  messages.addEventListener("focusout", hideOdds);
  messages.addEventListener("keydown", (event) => {
    if (!event.target.odds) return;
    const other = event.key === "ArrowRight" ? event.target.nextElementSibling : event.key === "ArrowLeft" ? event.target.previousElementSibling : null;
    if (other) event.preventDefault(), other.focus();
  });
  messages.addEventListener("click", (event) => {
    const button = event.target.closest(".copycode");
    if (button) copyText(button.closest("figure").querySelector("code").textContent, button);
  });
}
function bindFiles() {
  let depth = 0;
  const hasFiles = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
  const mark = (by) => {
    depth = by ? Math.max(0, depth + by) : 0;
    document.body.classList.toggle("dropping", depth > 0);
  };
  document.addEventListener("dragenter", (event) => { if (hasFiles(event)) event.preventDefault(), mark(1); });
  document.addEventListener("dragleave", (event) => { if (hasFiles(event)) mark(-1); });
  document.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(0);
    addFiles(event.dataTransfer.files);
  });
  at("ask").addEventListener("paste", (event) => {
    if (!event.clipboardData || !event.clipboardData.files.length || event.clipboardData.getData("text/plain")) return;
    event.preventDefault();
    addFiles(event.clipboardData.files);
  });
  at("attach").addEventListener("click", () => at("choose").click());
  at("choose").addEventListener("change", () => { addFiles([...at("choose").files]); at("choose").value = ""; });
}

async function begin() {
  loadSettings();
  const given = new URLSearchParams(location.hash.slice(1));
  if (["light", "dark"].includes(given.get("theme"))) settings.theme = given.get("theme");
  if (Object.hasOwn(words, given.get("lang"))) settings.tongue = given.get("lang");
  if (location.hash.length > 1) keepSettings();
  tongue = settings.tongue || (navigator.language.startsWith("ko") ? "ko" : "en");
  if (!Object.hasOwn(words, tongue)) tongue = "en";
  showSettings();
  bindSettings();
  bindKeys();
  bindFiles();
  at("form").addEventListener("submit", (event) => { event.preventDefault(); sendMessage(); });
  at("stop").addEventListener("click", () => { stopWriting(); at("ask").focus(); });
  for (const one of document.querySelectorAll(".fresh")) one.addEventListener("click", freshChat);
  at("theme").addEventListener("click", turn);
  at("language").addEventListener("click", translate);
  at("panelbutton").addEventListener("click", () => openPanel(!document.body.classList.contains("panel"), true));
  at("listbutton").addEventListener("click", () => openChats(!document.body.classList.contains("list")));
  for (const one of [at("shade"), ...document.querySelectorAll(".close")]) one.addEventListener("click", () => { openPanel(false); openChats(false); });
  at("talk").addEventListener("scroll", onScroll);
  at("talk").addEventListener("wheel", (event) => { if (event.deltaY < 0) follows = false; }, { passive: true });
  at("latest").addEventListener("click", () => { followAgain(); follow(); });
  at("ask").addEventListener("input", fitAsk);
  at("find").addEventListener("input", () => search(at("find").value));
  at("exportall").addEventListener("click", exportAll);
  at("import").addEventListener("click", () => at("importfile").click());
  at("importfile").addEventListener("change", async () => { for (const file of [...at("importfile").files]) await importChats(file); at("importfile").value = ""; });
  matchMedia("(max-width: 60rem)").addEventListener("change", arrange);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dress);
  addEventListener("pagehide", () => { for (const stream of streams.values()) keep(stream.conversation); });
  arrange();
  dress();
  at("ask").focus();
  try {
    await store.open();
    if (store.channel) store.channel.onmessage = async () => { await store.readHeads(); drawChats(); };
  } catch {
    notice("store", say("nostore"));
  }
  drawChats();
  document.body.dataset.ready = "1";
  await readModels().catch(() => { isGone = true; showState(); });
  look();
  setInterval(() => { if (!document.hidden) look(); }, 2000);
}
begin();
