// What the browser keeps. Settings: localStorage. Conversations: IndexedDB, with short heads apart from the bodies so that the
// list loads fast. All conversations together are bounded (setting "history"); a key is kept only as long as the tab.
const kDefaults = { system: "", temperature: "0.8", top_k: "40", top_p: "0.95", min_p: "0.05", repeat_penalty: "", max_tokens: "2048", seed: "", think: "", tools: "",
  odds: false, model: "", theme: "", tongue: "", history: "64", panel: "" };
const settings = { ...kDefaults };

function loadSettings() {
  try {
    const kept = JSON.parse(localStorage.getItem("lumen.settings") || "{}");
    for (const [name, value] of Object.entries(kDefaults)) if (typeof kept[name] === typeof value) settings[name] = kept[name];
  } catch { /* no storage, or not ours: the defaults hold */ }
}
function keepSettings() {
  try {
    localStorage.setItem("lumen.settings", JSON.stringify(settings));
  } catch { /* no storage: the settings hold until the page is closed */ }
}
function keptKey(value) {
  try {
    if (value === undefined) return sessionStorage.getItem("lumen.key") || "";
    sessionStorage.setItem("lumen.key", value);
  } catch { /* no storage */ }
  return "";
}

class HistoryFull extends Error {}

class Store {
  constructor() {
    this.heads = new Map();  // {id, title, changed, bytes}
    this.database = null;
    this.channel = window.BroadcastChannel ? new BroadcastChannel("lumen.chats") : null;
  }
  async open() {
    this.database = await new Promise((done, failed) => {
      const asked = indexedDB.open("lumen", 1);
      asked.onupgradeneeded = () => {
        asked.result.createObjectStore("heads", { keyPath: "id" });
        asked.result.createObjectStore("bodies", { keyPath: "id" });
      };
      asked.onsuccess = () => done(asked.result);
      asked.onerror = () => failed(asked.error);
      asked.onblocked = () => failed(new Error("blocked"));
    });
    await this.readHeads();
  }
  async readHeads() {
    if (!this.database) return;
    const all = await this.work("readonly", (heads) => heads.getAll());
    this.heads = new Map(all.map((head) => [head.id, head]));
  }
  // Runs `action(heads, bodies)` in one transaction, and gives the result of the request that it returns.
  work(mode, action) {
    return new Promise((done, failed) => {
      const transaction = this.database.transaction(["heads", "bodies"], mode);
      const asked = action(transaction.objectStore("heads"), transaction.objectStore("bodies"));
      transaction.oncomplete = () => done(asked && asked.result);
      transaction.onerror = transaction.onabort = () => failed(transaction.error || new Error("aborted"));
    });
  }
  // Throws HistoryFull where the bound or the browser's quota does not permit it; nothing older is dropped for it.
  async put(conversation) {
    if (!this.database) return;
    const text = JSON.stringify(conversation.plain());
    const head = { id: conversation.id, title: conversation.title, changed: conversation.changed, bytes: new Blob([text]).size };
    let others = 0;
    for (const one of this.heads.values()) if (one.id !== head.id) others += one.bytes;
    if (others + head.bytes > Number(settings.history || 0) * 2 ** 20) throw new HistoryFull();
    try {
      await this.work("readwrite", (heads, bodies) => { heads.put(head); bodies.put({ id: head.id, text }); });
    } catch (error) {
      throw error && error.name === "QuotaExceededError" ? new HistoryFull() : error;
    }
    this.heads.set(head.id, head);
    this.announce();
  }
  async get(id) {
    const body = this.database && await this.work("readonly", (heads, bodies) => bodies.get(id));
    return body ? conversationOf(JSON.parse(body.text), true) : null;
  }
  async remove(id) {
    this.heads.delete(id);
    if (this.database) await this.work("readwrite", (heads, bodies) => { heads.delete(id); bodies.delete(id); });
    this.announce();
  }
  // The ids of conversations with this in their title or a message.
  async find(words) {
    const wanted = words.toLowerCase(), out = new Set();
    for (const head of this.heads.values()) if (head.title.toLowerCase().includes(wanted)) out.add(head.id);
    if (!this.database) return out;
    await new Promise((done, failed) => {
      const asked = this.database.transaction("bodies").objectStore("bodies").openCursor();
      asked.onerror = () => failed(asked.error);
      asked.onsuccess = () => {
        const cursor = asked.result;
        if (!cursor) return done();
        if (!out.has(cursor.value.id)) {
          const isIn = (node) => [node.content, node.reasoning, ...(node.files || []).map((file) => file.name)].some((text) => text && text.toLowerCase().includes(wanted));
          if (JSON.parse(cursor.value.text).nodes.some(isIn)) out.add(cursor.value.id);
        }
        cursor.continue();
      };
    });
    return out;
  }
  announce() {
    if (this.channel) this.channel.postMessage("changed");
  }
}
const store = new Store();
