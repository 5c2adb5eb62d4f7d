#include "model/serve/forms/native.h"

#include "model/serve/asked_pictures.h"
#include "model/serve/fields.h"
#include "model/serve/forms/infill.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr double kNeverDrawn = -100;  // the bias that stands for `false`

// Fields that change no output.
constexpr const char* kIgnored[] = {
    "cache_prompt",      "id_slot",         "n_keep",          "n_discard",        "samplers",
    "timings_per_token", "return_progress", "n_indent",        "min_keep",         "dynatemp_exponent",
    "t_max_predict_ms",  "slot_id",         "response_fields", "preserved_tokens", "post_sampling_probs"};
// Fields that are off with this value.
constexpr const char* kOffAtZero[] = {"dynatemp_range", "t_max_prompt_ms"};

// A list that mixes strings and ids is one prompt.
ordered_json plain_prompt(const ordered_json& prompt, const ServedModel& model) {
  const auto is = [&](bool (ordered_json::*kind)() const noexcept) {
    return std::any_of(prompt.begin(), prompt.end(), [&](const ordered_json& one) { return (one.*kind)(); });
  };
  if (!prompt.is_array() || !is(&ordered_json::is_string) || !is(&ordered_json::is_number)) return prompt;
  ordered_json out = ordered_json::array();
  for (const ordered_json& one : prompt) {
    if (!one.is_string()) {
      out.push_back(one);
      continue;
    }
    const bool is_first = out.empty();
    for (const text::TokenId id :
         model.tokenizer.encode(one.get<std::string>(), {.add_special = is_first, .parse_special = true}))
      out.push_back(id);
  }
  return out;
}

// [[ID or TEXT, BIAS or false], ..] as an object.
ordered_json plain_bias(const ordered_json& given, const ServedModel& model) {
  if (!given.is_array()) return given;
  ordered_json out = ordered_json::object();
  for (const ordered_json& one : given) {
    if (!one.is_array() || one.size() != 2) throw wrong_value("logit_bias", "'logit_bias' is a list of [token, bias]");
    const ordered_json bias = one[1] == false ? ordered_json(kNeverDrawn) : one[1];
    std::vector<text::TokenId> ids;
    if (one[0].is_string())
      ids = tokens_of(model, one[0], "logit_bias", false);
    else
      ids.push_back(text::TokenId(Fields::whole_of(one[0], "logit_bias", 0, model.vocabulary - 1)));
    for (const text::TokenId id : ids) out[std::to_string(id)] = bias;
  }
  return out;
}

NativeAsk native_ask(const ordered_json& body, const ServedModel& model) {
  NativeAsk ask;
  // The defaults of that server.
  ask.body = {{"temperature", 0.8}, {"top_k", 40}, {"top_p", 0.95}, {"min_p", 0.05}};
  ask.body["max_tokens"] = most_tokens_of(model);
  for (const auto& [key, value] : body.items()) {
    if (value.is_null() || std::find(std::begin(kIgnored), std::end(kIgnored), key) != std::end(kIgnored)) continue;
    const bool is_off =
        value == 0 && std::find(std::begin(kOffAtZero), std::end(kOffAtZero), key) != std::end(kOffAtZero);
    if (key == "n_predict" || key == "max_tokens") {
      const int64_t most = Fields::whole_of(value, key, -2, INT32_MAX);
      if (most >= 0) ask.body["max_tokens"] = std::min(most, most_tokens_of(model));
    } else if (key == "n_probs") {
      const int64_t top = Fields::whole_of(value, key, 0, INT32_MAX);
      ask.with_chances = top > 0;
      if (top > 0) ask.body["logprobs"] = top;
    } else if (key == "seed" && value == UINT32_MAX) {
      ask.body["seed"] = -1;  // this value means a random seed
    } else if (key == "json_schema") {
      ask.body["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", value}}}};
    } else if (key == "grammar" && value == "") {
      continue;
    } else if (key == "logit_bias") {
      ask.body[key] = plain_bias(value, model);
    } else if (key == "prompt") {
      ask.body[key] = plain_prompt(value, model);
    } else if (key == "return_tokens") {
      if (!value.is_boolean()) throw wrong_value(key, "'return_tokens' must be true or false");
      ask.with_tokens = value;
    } else if (key == "n_cmpl") {
      ask.body["n"] = value;
    } else if (!is_off) {
      ask.body[key] = value;
    }
  }
  // The ids of tokens are passed on with their log probabilities.
  if (ask.with_tokens && !ask.with_chances) ask.body["logprobs"] = 0;
  return ask;
}

const char* stop_type(infer::EndReason reason) {
  switch (reason) {
    case infer::EndReason::end_token:
    case infer::EndReason::grammar:
      return "eos";
    case infer::EndReason::stop_string:
      return "word";
    case infer::EndReason::limit:
    case infer::EndReason::context:
      return "limit";
    case infer::EndReason::interrupted:
      break;
  }
  return "none";
}

}  // namespace

NativeAsk read_native_completion(const ordered_json& body, const ServedModel& model) {
  return native_ask(body, model);
}

NativeAsk read_infill(const ordered_json& body, const ServedModel& model) {
  ordered_json rest = body;
  const auto text = [&](const char* name) {
    const ordered_json value = rest.value(name, ordered_json(""));
    if (!value.is_string()) throw wrong_value(name, key_in_quotes(name) + " must be a string");
    rest.erase(name);
    return value.get<std::string>();
  };
  // The prompt is the beginning of the middle, which the model continues.
  const std::string prefix = text("input_prefix"), suffix = text("input_suffix"), begun = text("prompt");
  std::vector<std::pair<std::string, std::string>> files;
  const ordered_json extra = rest.value("input_extra", ordered_json::array());
  if (!extra.is_array()) throw wrong_value("input_extra", "'input_extra' must be a list of {'filename', 'text'}");
  for (const ordered_json& one : extra) {
    const bool is_file = one.is_object() && one.value("text", ordered_json()).is_string() &&
                         one.value("filename", ordered_json("")).is_string();
    if (!is_file) throw wrong_value("input_extra", "'input_extra' must be a list of {'filename', 'text'}");
    files.emplace_back(one.value("filename", "tmp"), one["text"]);
  }
  rest.erase("input_extra");
  NativeAsk ask = native_ask(rest, model);
  std::vector<text::TokenId> prompt = infill_prompt(model, prefix, suffix, files);
  const std::vector<text::TokenId> more = tokens_of(model, begun, "prompt", false);
  prompt.insert(prompt.end(), more.begin(), more.end());
  ask.body["prompt"] = prompt;
  return ask;
}

NativeReply::NativeReply(const GenerationRequest& request, const ServedModel& model, int64_t created, NativeAsk ask)
    : Reply(request, model, created), ask_(std::move(ask)), parts_(outputs()), most_(request.generate.predict) {
  ask_.body = nullptr;
  for (const auto& prompt : request.prompts) prompts_.insert(prompts_.end(), request.n, std::ssize(prompt));
}

void NativeReply::note(const Delta& delta, Part* part) const {
  for (const auto& token : delta.tokens) {
    if (!token) continue;
    part->tokens.push_back(token->id);
    if (!ask_.with_chances) continue;
    const auto one = [&](text::TokenId id, double value) {
      ordered_json out = chance(id, value);
      out["id"] = id;
      return out;
    };
    ordered_json said = one(token->id, token->chance);
    said["top_logprobs"] = ordered_json::array();
    for (const auto& [id, value] : token->top) said["top_logprobs"].push_back(one(id, value));
    part->chances.push_back(std::move(said));
  }
}

void NativeReply::add(Delta delta) {
  pace_.saw();
  Part& part = parts_.at(delta.index);
  note(delta, &part);
  if (delta.ended) {
    part.made = delta.answer.made;
    part.read = delta.answer.read;
    part.shared = delta.answer.shared;
  }
  delta.tokens.clear();  // they are reported in this API's own form
  Reply::add(std::move(delta));
}

// The answer at its end, without content and tokens.
ordered_json NativeReply::ended(int64_t index) const {
  const Output& output = output_at(index);
  const Part& part = parts_.at(index);
  ordered_json out;
  out["index"] = index;
  out["content"] = "";
  out["tokens"] = ordered_json::array();
  out["id_slot"] = -1;
  out["stop"] = true;
  out["model"] = model().name;
  out["tokens_predicted"] = part.made;
  out["tokens_evaluated"] = prompts_.at(index);
  out["generation_settings"] = {{"n_predict", most_}, {"n_ctx", model().longest}};
  out["has_new_line"] = output.text.find('\n') != std::string::npos;
  out["truncated"] = false;
  out["stop_type"] = stop_type(output.reason);
  out["stopping_word"] = output.stop;
  out["tokens_cached"] = part.shared;
  const auto times = [&](const char* name, int64_t count, double seconds) {
    const std::string key = name;
    out["timings"][key + "_n"] = count;
    out["timings"][key + "_ms"] = seconds * 1e3;
    out["timings"][key + "_per_token_ms"] = count > 0 ? seconds * 1e3 / double(count) : 0;
    out["timings"][key + "_per_second"] = seconds > 0 ? double(count) / seconds : 0;
  };
  out["timings"]["cache_n"] = part.shared;
  times("prompt", part.read, pace_.prompt());
  times("predicted", part.made, pace_.writing());
  return out;
}

ordered_json NativeReply::whole() const {
  ordered_json all = ordered_json::array();
  for (int64_t i = 0; i < outputs(); ++i) {
    ordered_json out = ended(i);
    out["content"] = output_at(i).text;
    if (ask_.with_tokens) out["tokens"] = parts_[i].tokens;
    if (ask_.with_chances) out["completion_probabilities"] = parts_[i].chances;
    all.push_back(std::move(out));
  }
  return all.size() == 1 ? all[0] : all;
}

std::string NativeReply::events(Delta delta) {
  pace_.saw();
  const int64_t index = delta.index;
  Part piece;
  note(delta, &piece);
  std::string out;
  const auto event = [&](const ordered_json& value) { out += "data: " + json_line(value) + "\n\n"; };
  const std::string text = delta.text;
  const bool is_over = delta.ended;
  add(std::move(delta));
  if (!text.empty() || !piece.tokens.empty()) {
    ordered_json one;
    one["index"] = index;
    one["content"] = text;
    one["tokens"] = ask_.with_tokens ? ordered_json(piece.tokens) : ordered_json::array();
    one["stop"] = false;
    one["id_slot"] = -1;
    one["tokens_predicted"] = parts_[index].tokens.size();
    one["tokens_evaluated"] = prompts_.at(index);
    if (ask_.with_chances) one["completion_probabilities"] = piece.chances;
    event(one);
  }
  if (is_over) event(ended(index));
  return out;
}

std::string NativeReply::failed_events(const Refusal& refusal) const {
  return "error: " + refusal.body() + "\n\n";
}

ordered_json plain_tokenize(ordered_json body) {
  for (const char* own : {"with_pieces", "parse_special"}) {
    const ordered_json value = body.value(own, ordered_json());
    if (!value.is_null() && !value.is_boolean()) throw wrong_value(own, key_in_quotes(own) + " must be true or false");
  }
  if (body.value("parse_special", ordered_json()) == false)
    throw Refusal(400, "'parse_special' false is not supported", "parse_special", "unsupported_parameter");
  if (body.contains("content") && !body.contains("add_special") && !body.contains("add_special_tokens"))
    body["add_special"] = false;
  body.erase("with_pieces");
  body.erase("parse_special");
  return body;
}

ordered_json native_tokens(const std::vector<text::TokenId>& tokens, const ServedModel& model) {
  ordered_json out = ordered_json::array();
  for (const text::TokenId id : tokens) {
    const std::string bytes = model.tokenizer.has(id) ? model.tokenizer.bytes(id) : std::string();
    ordered_json piece = bytes;
    if (text::utf8_valid_run(bytes, 0) != bytes.size()) piece = std::vector<uint8_t>(bytes.begin(), bytes.end());
    out.push_back({{"id", id}, {"piece", std::move(piece)}});
  }
  return {{"tokens", std::move(out)}};
}

ordered_json native_props(const ServedModel& model, int64_t slots, const std::string& version) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  const auto name = [&](std::optional<text::TokenId> id) {
    return id && tokenizer.has(*id) ? text::utf8_repair(tokenizer.bytes(*id)) : std::string();
  };
  ordered_json out;
  out["default_generation_settings"] = {
      {"id", 0},
      {"n_ctx", model.longest},
      {"params", {{"temperature", 0.8}, {"top_k", 40}, {"top_p", 0.95}, {"min_p", 0.05}, {"n_predict", -1}}}};
  out["total_slots"] = slots;
  out["model_alias"] = model.name;
  out["model_path"] = model.facts.file;
  out["modalities"] = {{"vision", model.pictures.has_value()}, {"audio", false}};
  out["chat_template"] = tokenizer.chat_template();
  out["bos_token"] = name(tokenizer.bos());
  out["eos_token"] = name(tokenizer.eos());
  out["build_info"] = "lumen " + version;
  return out;
}

ordered_json native_slots(const ServedModel& model, int64_t slots, int64_t running) {
  ordered_json out = ordered_json::array();
  for (int64_t i = 0; i < slots; ++i)
    out.push_back({{"id", i}, {"n_ctx", model.longest}, {"is_processing", i < running}});
  return out;
}

ordered_json apply_template(const ordered_json& body, const ServedModel& model) {
  if (!model.chat) throw Refusal(400, "this model has no chat template", "model", "unsupported_model");
  const GenerationRequest request = read_chat(body, model);
  std::vector<text::TokenId> prompt = without_rows(request.prompts.at(0), request.pictures, model);
  // A completion of this prompt adds BOS itself.
  if (model.tokenizer.adds_bos() && model.tokenizer.bos() == prompt.front()) prompt.erase(prompt.begin());
  return {{"prompt", text::utf8_repair(model.tokenizer.decode(prompt, false))}};
}

}  // namespace lumen::model::serve
