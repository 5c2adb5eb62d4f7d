#include "model/serve/forms/ollama.h"

#include <deque>

#include "model/infer/measure/pooling.h"
#include "model/serve/fields.h"
#include "model/serve/forms/infill.h"
#include "model/serve/pictures/picture_parts.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kKeptYears = 100;  // a model stays loaded while the server runs

int64_t nanoseconds(double seconds) {
  return int64_t(seconds * 1e9);
}

std::string text_of(Fields& fields, const char* name) {
  const ordered_json* value = fields.find(name);
  if (value && !value->is_string()) throw wrong_value(name, key_in_quotes(name) + " must be a string");
  return value ? value->get<std::string>() : std::string();
}

// A content with pictures in base64, which stand before the text as in Ollama.
ordered_json content_with(const ordered_json* images, const std::string& text) {
  MixedContent out;
  if (images && !images->is_array()) throw wrong_value("images", "'images' must be a list of pictures in base64");
  if (images) {
    for (const ordered_json& image : *images) {
      if (!image.is_string()) throw wrong_value("images", "'images' must be a list of pictures in base64");
      const auto& data = image.get_ref<const std::string&>();
      out.add_picture(data.starts_with("data:") ? data : data_url("image/*", data));
    }
  }
  out.add_text(text);
  return out.json();
}

// Options with a name of their own; others have the same name in both APIs. The defaults are those of Ollama.
void read_options(Fields& fields, ordered_json* chat) {
  (*chat)["temperature"] = 0.8;
  (*chat)["top_k"] = 40;
  (*chat)["top_p"] = 0.9;
  (*chat)["repeat_penalty"] = 1.1;
  const ordered_json* options = fields.find("options");
  if (!options) return;
  if (!options->is_object()) throw wrong_value("options", "'options' must be an object");
  const auto is_ignored = [](const std::string& key) {
    constexpr const char* kIgnored[] = {"num_ctx",  "num_batch", "num_gpu",    "main_gpu", "num_thread",
                                        "use_mmap", "use_mlock", "numa",       "low_vram", "vocab_only",
                                        "num_keep", "f16_kv",    "logits_all", "num_gqa",  "penalize_newline"};
    return std::find(std::begin(kIgnored), std::end(kIgnored), key) != std::end(kIgnored);
  };
  for (const auto& [key, value] : options->items()) {
    if (value.is_null() || is_ignored(key)) continue;
    if (key == "num_predict") {
      if (Fields::whole_of(value, key, -2, INT32_MAX) > 0) (*chat)["max_tokens"] = value;
    } else if (key == "tfs_z" && value == 1) {
      continue;
    } else if (key == "model" || key == "messages" || key == "prompt" || key == "tools" || key == "stream") {
      throw wrong_value("options", "'options' has no " + key_in_quotes(key));
    } else {
      (*chat)[key] = value;
    }
  }
}

void read_format(Fields& fields, ordered_json* chat) {
  const ordered_json* format = fields.find("format");
  if (!format || *format == "") return;
  if (*format == "json")
    (*chat)["response_format"] = {{"type", "json_object"}};
  else if (format->is_object())
    (*chat)["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *format}}}};
  else
    throw wrong_value("format", "'format' must be \"json\" or a JSON schema");
}

// `think`: true, false, or how much ("low", "medium", "high").
void read_thinking(Fields& fields, ordered_json* chat) {
  const ordered_json* think = fields.find("think");
  if (!think) return;
  if (!think->is_boolean() && *think != "low" && *think != "medium" && *think != "high")
    throw wrong_value("think", "'think' must be true, false, \"low\", \"medium\" or \"high\"");
  (*chat)["chat_template_kwargs"]["enable_thinking"] = !think->is_boolean() || think->get<bool>();
  if (think->is_string()) (*chat)["chat_template_kwargs"]["reasoning_effort"] = *think;
}

// The members that both kinds of requests have.
void read_common(Fields& fields, OllamaAsk* ask) {
  ask->model = text_of(fields, "model");
  ask->body["model"] = ask->model;
  ask->body["stream"] = fields.boolean("stream", true);
  read_options(fields, &ask->body);
  read_format(fields, &ask->body);
  fields.ignore({"keep_alive", "truncate", "shift", "_debug_render_only"});
}

// Calls have no ids in Ollama's messages: results belong to the calls in their order, or to the one of their name.
class CallIds {
 public:
  void add_calls(const ordered_json& calls, ordered_json* message) {
    if (!calls.is_array()) throw wrong_value("messages", "'tool_calls' must be a list");
    for (const ordered_json& call : calls) {
      const ordered_json function = call.is_object() ? call.value("function", ordered_json()) : ordered_json();
      if (!function.is_object() || !function.value("name", ordered_json()).is_string())
        throw wrong_value("messages", "a call is {'function': {'name', 'arguments'}}");
      const ordered_json given = call.value("id", ordered_json());
      const std::string id = given.is_string() ? given.get<std::string>() : fmt::format("call_{}", ++count_);
      const std::string name = function["name"];
      const ordered_json arguments = function.value("arguments", ordered_json());
      open_.emplace_back(id, name);
      (*message)["tool_calls"].push_back(
          {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
    }
  }
  void add_result(const std::string& name, ordered_json* message) {
    auto at = std::find_if(open_.begin(), open_.end(), [&](const auto& one) { return one.second == name; });
    if (at == open_.end()) at = open_.begin();
    if (at == open_.end()) return;
    if (!message->contains("tool_call_id")) (*message)["tool_call_id"] = at->first;
    open_.erase(at);
  }

 private:
  int64_t count_ = 0;
  std::deque<std::pair<std::string, std::string>> open_;  // ids and names of calls without a result
};

ordered_json chat_messages(const ordered_json& given) {
  ordered_json out = ordered_json::array();
  CallIds ids;
  for (const ordered_json& message : given) {
    if (!message.is_object()) throw wrong_value("messages", "a message is an object");
    ordered_json one = ordered_json::object();
    std::string tool;
    for (const auto& [key, value] : message.items()) {
      if (value.is_null()) continue;
      if (key == "images")
        continue;
      else if (key == "tool_calls" && !(value.is_array() && value.empty()))
        ids.add_calls(value, &one);
      else if ((key == "tool_name" || key == "name") && value.is_string())
        one["name"] = tool = value;
      else if (key == "thinking" && value != "")
        one["reasoning_content"] = value;
      else if (key != "tool_calls" && key != "thinking")
        one[key] = value;
    }
    if (one.value("role", ordered_json()) == "tool") ids.add_result(tool, &one);
    if (!one.contains("content")) one["content"] = "";
    if (message.contains("images") && !message["images"].is_null() && one["content"].is_string())
      one["content"] = content_with(&message["images"], one["content"].get<std::string>());
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

OllamaAsk read_ollama_chat(const ordered_json& body) {
  OllamaAsk ask;
  ask.body = ordered_json::object();
  Fields fields(body);
  read_common(fields, &ask);
  read_thinking(fields, &ask.body);
  const ordered_json* messages = fields.find("messages");
  if (messages && !messages->is_array()) throw wrong_value("messages", "'messages' must be a list of messages");
  ask.is_load = !messages || messages->empty();
  if (!ask.is_load) ask.body["messages"] = chat_messages(*messages);
  if (const ordered_json* tools = fields.find("tools")) ask.body["tools"] = *tools;
  for (const char* same : {"logprobs", "top_logprobs"})
    if (fields.boolean("logprobs", false) && fields.find(same)) ask.body[same] = *fields.find(same);
  fields.refuse_others();
  return ask;
}

OllamaAsk read_ollama_generate(const ordered_json& body, const ServedModel& model) {
  OllamaAsk ask;
  ask.is_generate = true;
  ask.body = ordered_json::object();
  Fields fields(body);
  read_common(fields, &ask);
  const std::string prompt = text_of(fields, "prompt"), system = text_of(fields, "system"),
                    suffix = text_of(fields, "suffix");
  const bool is_raw = fields.boolean("raw", false);
  const ordered_json* images = fields.find("images");
  fields.only("template", {""});
  fields.only("context", {ordered_json::array()});
  ask.is_load = prompt.empty() && suffix.empty();
  ask.is_chat = !is_raw && suffix.empty() && model.chat.has_value();
  if (ask.is_chat) {
    ordered_json& messages = ask.body["messages"] = ordered_json::array();
    if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
    messages.push_back({{"role", "user"}, {"content", content_with(images, prompt)}});
    read_thinking(fields, &ask.body);
  } else {
    fields.only("system", {""});
    fields.only("think", {false});
    fields.only("images", {ordered_json::array()});
    ask.body["prompt"] =
        suffix.empty() || ask.is_load ? ordered_json(prompt) : ordered_json(infill_prompt(model, prompt, suffix, {}));
    if (!ask.body.contains("max_tokens")) ask.body["max_tokens"] = most_tokens_of(model);
  }
  fields.refuse_others();
  return ask;
}

ordered_json ollama_loaded(const OllamaAsk& ask, int64_t now) {
  ordered_json out;
  out["model"] = ask.model;
  out["created_at"] = utc_time(now);
  if (ask.is_generate)
    out["response"] = "";
  else
    out["message"] = {{"role", "assistant"}, {"content", ""}};
  out["done"] = true;
  out["done_reason"] = "load";
  return out;
}

OllamaReply::OllamaReply(const GenerationRequest& request, const ServedModel& model, int64_t created, OllamaAsk ask)
    : Reply(request, model, created), ask_(std::move(ask)) {
  ask_.body = nullptr;
  if (ask_.model.empty()) ask_.model = model.name;
}

ordered_json OllamaReply::piece(const std::string& text, const std::string& thinking) const {
  ordered_json out;
  out["model"] = ask_.model;
  out["created_at"] = utc_time(created() + int64_t(pace_.whole()));
  if (ask_.is_generate)
    out["response"] = text;
  else
    out["message"] = {{"role", "assistant"}, {"content", text}};
  if (!thinking.empty()) (ask_.is_generate ? out : out["message"])["thinking"] = thinking;
  out["done"] = false;
  return out;
}

void OllamaReply::put_end(ordered_json* out) const {
  (*out)["done"] = true;
  (*out)["done_reason"] = std::string(finish_reason(output_at(0))) == "length" ? "length" : "stop";
  (*out)["total_duration"] = nanoseconds(pace_.whole());
  (*out)["load_duration"] = 0;
  (*out)["prompt_eval_count"] = prompt_tokens();
  (*out)["prompt_eval_duration"] = nanoseconds(pace_.prompt());
  (*out)["eval_count"] = made_tokens();
  (*out)["eval_duration"] = nanoseconds(pace_.writing());
}

// Ollama sends a call at once, with its arguments as an object; null if the token limit has cut the call.
ordered_json OllamaReply::call_at(size_t index) const {
  const Call& call = output_at(0).calls.at(index);
  ordered_json arguments = ordered_json::parse(call.arguments, nullptr, false);
  if (arguments.is_discarded()) return nullptr;
  return {{"id", call.id}, {"function", {{"index", index}, {"name", call.name}, {"arguments", std::move(arguments)}}}};
}

void OllamaReply::add(Delta delta) {
  pace_.saw();
  Reply::add(std::move(delta));
}

ordered_json OllamaReply::whole() const {
  ordered_json out = piece(output_at(0).text, output_at(0).reasoning);
  for (size_t i = 0; i < output_at(0).calls.size(); ++i)
    if (ordered_json call = call_at(i); !call.is_null()) out["message"]["tool_calls"].push_back(std::move(call));
  if (output_at(0).logprobs.is_object() && output_at(0).logprobs.contains("content"))
    out["logprobs"] = output_at(0).logprobs["content"];
  put_end(&out);
  return out;
}

std::string OllamaReply::events(Delta delta) {
  pace_.saw();
  const std::vector<CallPiece> pieces = take(delta);
  std::string text, thinking, out;
  for (const CallPiece& one : pieces) {
    if (one.kind == CallPiece::Kind::text) text += one.text;
    if (one.kind == CallPiece::Kind::reasoning) thinking += one.text;
  }
  if (!text.empty() || !thinking.empty()) out += json_line(piece(text, thinking)) + "\n";
  // A call is complete when the next one begins, or at the end.
  const size_t complete = output_at(0).calls.size() - (has_ended() || output_at(0).calls.empty() ? 0 : 1);
  for (; calls_sent_ < complete; ++calls_sent_) {
    ordered_json call = call_at(calls_sent_);
    if (call.is_null()) continue;
    ordered_json line = piece("");
    line["message"]["tool_calls"].push_back(std::move(call));
    out += json_line(line) + "\n";
  }
  return out;
}

std::string OllamaReply::last_events() {
  ordered_json out = piece("");
  put_end(&out);
  return json_line(out) + "\n";
}

std::string OllamaReply::failed_events(const Refusal& refusal) const {
  return ollama_error(refusal) + "\n";
}

OllamaEmbedding read_ollama_embedding(const ordered_json& body, const ServedModel& model, bool is_single) {
  OllamaEmbedding out;
  out.is_single = is_single;
  Fields fields(body);
  out.model = text_of(fields, "model");
  const char* name = is_single ? "prompt" : "input";
  const ordered_json* given = fields.find(name);
  ordered_json inputs = given ? *given : ordered_json();
  if (inputs.is_string()) inputs = ordered_json::array({inputs});
  if (!inputs.is_array() || (is_single && inputs.size() != 1))
    throw wrong_value(name, key_in_quotes(name) + " must be a string" + (is_single ? "" : " or a list of strings"));
  const bool is_cut = fields.boolean("truncate", true);
  out.dimensions = fields.whole("dimensions", 0, 0, INT32_MAX);
  fields.ignore({"options", "keep_alive"});
  fields.refuse_others();
  // Inputs that are too long are cut, as Ollama does by default; the token that ends an input stays.
  ordered_json ids = ordered_json::array();
  for (const ordered_json& input : inputs) {
    if (!input.is_string()) throw wrong_value(name, key_in_quotes(name) + " must contain strings");
    std::vector<text::TokenId> tokens = tokens_of(model, input, name, true);
    if (is_cut && std::ssize(tokens) > model.longest_read && model.longest_read > 1) {
      if (model.tokenizer.adds_eos()) tokens[model.longest_read - 1] = tokens.back();
      tokens.resize(model.longest_read);
    }
    ids.push_back(tokens);
  }
  out.request = read_embedding({{"input", std::move(ids)}}, model);
  return out;
}

ordered_json ollama_embedding_reply(const OllamaEmbedding& ask, std::vector<std::vector<float>> vectors) {
  int64_t tokens = 0;
  for (const auto& input : ask.request.inputs) tokens += std::ssize(input);
  if (ask.dimensions > 0) {
    for (auto& vector : vectors) {
      vector.resize(std::min<size_t>(vector.size(), ask.dimensions));
      infer::normalise(vector, 2);
    }
  }
  if (ask.is_single) return {{"embedding", vectors.at(0)}};
  ordered_json out;
  out["model"] = ask.model;
  out["embeddings"] = vectors;
  out["total_duration"] = nanoseconds(ask.pace.whole());
  out["load_duration"] = 0;
  out["prompt_eval_count"] = tokens;
  return out;
}

namespace {

std::string parameters_of(int64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.1f}B", double(count) * 1e-9);
  if (count >= 1'000'000) return fmt::format("{:.1f}M", double(count) * 1e-6);
  return fmt::format("{:.1f}K", double(count) * 1e-3);
}

ordered_json details_of(const ServedModel& model) {
  ordered_json out;
  out["parent_model"] = "";
  out["format"] = model.facts.file.ends_with(".gguf") ? "gguf" : "safetensors";
  out["family"] = model.facts.family;
  out["families"] = {model.facts.family};
  out["parameter_size"] = parameters_of(model.facts.parameters);
  out["quantization_level"] = model.facts.format;
  return out;
}

}  // namespace

ordered_json ollama_models(const std::vector<const ServedModel*>& models, bool is_running) {
  ordered_json out;
  out["models"] = ordered_json::array();
  for (const ServedModel* model : models) {
    ordered_json one;
    one["name"] = one["model"] = model->name;
    if (!is_running) one["modified_at"] = utc_time(model->facts.modified);
    one["size"] = model->facts.bytes;
    one["digest"] = model->facts.digest;
    one["details"] = details_of(*model);
    if (is_running) {
      one["expires_at"] = utc_time(model->facts.modified + kKeptYears * 365 * 86400);
      one["size_vram"] = model->facts.bytes;
      one["context_length"] = model->longest;
    }
    out["models"].push_back(std::move(one));
  }
  return out;
}

ordered_json ollama_model(const ServedModel& model) {
  ordered_json out;
  const std::string& chat = model.tokenizer.chat_template();
  out["modelfile"] = "FROM " + model.facts.file + "\n";
  out["parameters"] = "";
  out["template"] = chat;
  out["details"] = details_of(model);
  out["model_info"] = {{"general.architecture", model.facts.family},
                       {"general.parameter_count", model.facts.parameters},
                       {model.facts.family + ".context_length", std::max(model.longest, model.longest_read)},
                       {model.facts.family + ".vocab_size", model.vocabulary}};
  out["capabilities"] = ordered_json::array();
  if (model.longest > 0) out["capabilities"].push_back("completion");
  if (model.longest > 0 && model.calls) out["capabilities"].push_back("tools");
  if (has_infill(model)) out["capabilities"].push_back("insert");
  if (model.pictures) out["capabilities"].push_back("vision");
  if (model.longest > 0 && chat.find("enable_thinking") != std::string::npos) out["capabilities"].push_back("thinking");
  if (model.longest == 0) out["capabilities"].push_back("embedding");
  out["modified_at"] = utc_time(model.facts.modified);
  return out;
}

std::string ollama_error(const Refusal& refusal) {
  return json_line({{"error", refusal.what()}});
}

}  // namespace lumen::model::serve
