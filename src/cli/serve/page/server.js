// Requests to this server: models, numbers, and streams of answers.
function headsOfRequest() {
  const out = { "Content-Type": "application/json" };
  if (at("key").value) out.Authorization = "Bearer " + at("key").value;
  return out;
}
async function failure(reply) {
  if (reply.status === 401) {
    at("keyrow").hidden = false;
    openPanel(true);
    at("key").focus();
  }
  try {
    return (await reply.json()).error.message || String(reply.status);
  } catch {
    return String(reply.status);
  }
}

async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
      if (data === "[DONE]") yield null;
      else if (data) yield JSON.parse(data);
    }
  }
}

function requestBody(messages, isContinued) {
  const body = { model: at("model").value, stream: true, stream_options: { include_usage: true }, messages };
  if (settings.system.trim()) body.messages = [{ role: "system", content: settings.system }, ...messages];
  for (const name of ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "max_tokens", "seed"]) if (settings[name] !== "") body[name] = Number(settings[name]);
  if (settings.odds) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  if (settings.think) body.chat_template_kwargs = { enable_thinking: settings.think === "on" };
  if (settings.tools.trim()) {
    let tools;
    try { tools = JSON.parse(settings.tools); } catch { tools = null; }
    if (!Array.isArray(tools)) throw new Error(say("badtools"));
    body.tools = tools;
  }
  if (isContinued) Object.assign(body, { continue_final_message: true, add_generation_prompt: false });
  return body;
}

// Adds the answer's pieces to `node` and calls `changed` after each. Throws what ends it otherwise.
async function streamInto(node, body, signal, changed) {
  const begin = performance.now();
  let first = 0, tokens = 0, pieces = 0, prompt, hasEnded = false;
  try {
    const reply = await fetch("/v1/chat/completions", { method: "POST", headers: headsOfRequest(), body: JSON.stringify(body), signal });
    if (!reply.ok) throw new Error(await failure(reply));
    for await (const event of eventsOf(reply)) {
      if (!event) { hasEnded = true; continue; }
      if (event.error) throw new Error(event.error.message || String(event.error));
      if (event.usage) tokens = event.usage.completion_tokens, prompt = event.usage.prompt_tokens;
      const choice = event.choices && event.choices[0];
      if (!choice) continue;
      if (choice.finish_reason) node.finish = choice.finish_reason, hasEnded = true;
      const delta = choice.delta || {}, thought = delta.reasoning_content || delta.reasoning || "";
      if (!first && (delta.content || thought || delta.tool_calls)) first = performance.now();
      if (thought) node.reasoning = (node.reasoning || "") + thought;
      if (delta.content) {
        if (node.reasoning && node.seconds === undefined) node.seconds = (performance.now() - first) / 1000;
        node.content += delta.content;
      }
      if (delta.content || thought) pieces++;
      for (const part of delta.tool_calls || []) {
        node.calls = node.calls || [];
        const index = part.index === undefined ? node.calls.length : part.index;
        if (!(index >= 0 && index < 128)) continue;
        while (node.calls.length <= index) node.calls.push({ id: "", name: "", text: "" });
        const call = node.calls[index];
        if (part.id) call.id = part.id;
        if (part.function && part.function.name) call.name += part.function.name;
        if (part.function && part.function.arguments) call.text += part.function.arguments;
      }
      if (choice.logprobs && choice.logprobs.content && choice.logprobs.content.length) {
        node.odds = node.odds || [];
        for (const one of choice.logprobs.content) node.odds.push(one);
      }
      changed();
    }
    if (!hasEnded) throw new Error(say("broken"));
  } finally {
    if (first) {
      // Without the server's count (a stopped answer) the pieces are counted, which may hold several tokens each.
      const made = tokens || pieces, seconds = (performance.now() - first) / 1000;
      node.stats = { first: (first - begin) / 1000, seconds, tokens: made, exact: tokens ? 1 : 0 };
      if (prompt !== undefined) node.stats.prompt = prompt;
      if (made > 1 && seconds > 0) node.stats.rate = (made - 1) / seconds;
    }
  }
}

let before = null, isGone = false;
async function look() {
  try {
    const reply = await fetch("/metrics", { headers: headsOfRequest() });
    const wasGone = isGone;
    isGone = false;
    showState();
    if (!reply.ok) return void (reply.status === 401 && at("keyrow").hidden && await failure(reply));
    const sums = {}, now = performance.now();
    for (const line of (await reply.text()).split("\n")) {
      const found = line.match(/^([a-z_]+)(?:{[^}]*})? ([-+.e0-9]+)$/);
      if (found) sums[found[1]] = (sums[found[1]] || 0) + Number(found[2]);
    }
    const written = sums.lumen_generation_tokens_total || 0;
    if (before) at("all").textContent = Math.max(0, (written - before.written) / (now - before.now) * 1000).toFixed(1) + " /s";
    before = { written, now };
    at("running").textContent = String(sums.lumen_requests_running || 0);
    at("waiting").textContent = String(sums.lumen_requests_waiting || 0);
    at("cache").textContent = (100 * (sums.lumen_cache_usage_ratio || 0) / Math.max(1, at("model").options.length)).toFixed(0) + " %";
    if (sums.process_resident_memory_bytes) at("memory").textContent = (sums.process_resident_memory_bytes / 2 ** 20).toFixed(0) + " MiB";
    if (wasGone || !at("model").options.length) await readModels();
  } catch {
    isGone = true;
    showState();
  }
}
let seeing = new Set();  // models that read pictures
const canSee = () => seeing.has(at("model").value);
async function readModels() {
  const reply = await fetch("/v1/models", { headers: headsOfRequest() });
  if (!reply.ok) return void (await failure(reply));
  const models = (await reply.json()).data, ids = models.map((one) => one.id), chosen = at("model").value || settings.model;
  seeing = new Set(models.filter((one) => (one.input_modalities || []).includes("image")).map((one) => one.id));
  at("model").replaceChildren(...ids.map((id) => new Option(id, id)));
  if (ids.includes(chosen)) at("model").value = chosen;
  sayFiles();
}
