#include "model/serve/request.h"

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/structured/json.h"
#include "model/serve/asked_pictures.h"
#include "model/serve/fields.h"
#include "model/serve/hints.h"
#include "model/serve/pictures/picture_chat.h"
#include "model/templates/messages.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestRequest = 64;
constexpr int64_t kMostStops = 16, kMostInputs = 2048, kMostTop = 20, kMostTools = 128, kMostNumber = INT32_MAX;
constexpr size_t kLongestStop = 1024;
constexpr int64_t kUsualCompletion = 16;                 // tokens, if a completion request has no max_tokens
constexpr double kLeastAbove = 1e-6;                     // smallest value of parameters that must be above 0
constexpr size_t kMostLogged = 256, kMostWarnings = 32;  // different warnings in the log, and warnings of one reply

// Reads a list of token ids.
std::vector<text::TokenId> ids_of(const ordered_json& list, const std::string& name, const ServedModel& model) {
  std::vector<text::TokenId> ids;
  ids.reserve(list.size());
  for (const auto& id : list) ids.push_back(text::TokenId(Fields::whole_of(id, name, 0, model.vocabulary - 1)));
  return ids;
}

std::vector<text::TokenId> ids_of(const std::string& text, const std::string& name, const ServedModel& model,
                                  bool add_special) {
  text::EncodeOptions encode;
  encode.add_special = add_special;
  encode.parse_special = true;
  try {
    return model.tokenizer.encode(text, encode);
  } catch (const Error& error) {
    throw wrong_value(name, error.what());  // characters that are not in the vocabulary
  }
}

// Ids outside of the tokenizer's vocabulary are skipped.
std::string text_of(const std::vector<text::TokenId>& ids, const ServedModel& model) {
  std::vector<text::TokenId> known;
  for (const text::TokenId id : ids)
    if (model.tokenizer.has(id)) known.push_back(id);
  return text::utf8_repair(model.tokenizer.decode(known, false));
}

void check_length(const std::vector<text::TokenId>& tokens, int64_t most, const std::string& name) {
  if (tokens.empty()) throw wrong_value(name, key_in_quotes(name) + " has an empty input, which has no tokens");
  if (std::ssize(tokens) > most)
    throw Refusal(400,
                  fmt::format("{} has {} tokens, but the context holds {}", key_in_quotes(name), tokens.size(), most),
                  name, "context_length_exceeded");
}

// Reads a string, a list of strings, a list of token ids, or a list of such lists. `strings` may be null.
void read_inputs(const ordered_json* value, const std::string& name, const ServedModel& model, int64_t longest,
                 int64_t most, std::vector<std::vector<text::TokenId>>* tokens, std::vector<std::string>* strings) {
  if (!value) throw wrong_value(name, key_in_quotes(name) + " is missing");
  const auto add_text = [&](const std::string& text) {
    tokens->push_back(ids_of(text, name, model, true));
    if (strings) strings->push_back(text);
  };
  const auto add_ids = [&](const ordered_json& list) {
    tokens->push_back(ids_of(list, name, model));
    if (strings) strings->push_back(text_of(tokens->back(), model));
  };
  const auto too_many = [&](size_t count) {
    if (count > size_t(most))
      throw wrong_value(name, fmt::format("{} has more than {} inputs", key_in_quotes(name), most));
  };
  if (value->is_string()) {
    add_text(value->get_ref<const std::string&>());
  } else if (value->is_array() && !value->empty() && value->front().is_number()) {
    add_ids(*value);
  } else if (value->is_array() && !value->empty()) {
    too_many(value->size());
    for (const auto& one : *value) {
      if (one.is_string()) {
        add_text(one.get_ref<const std::string&>());
      } else if (one.is_array()) {
        add_ids(one);
      } else {
        throw wrong_value(name, key_in_quotes(name) + " must be a string, a list of strings, or lists of token ids");
      }
    }
  } else {
    throw wrong_value(name, key_in_quotes(name) + " must be a string, a list of strings, or lists of token ids");
  }
  for (const auto& one : *tokens) check_length(one, longest, name);
}

void read_bias(Fields& fields, const ServedModel& model, infer::SamplerOptions* sampling) {
  const ordered_json* bias = fields.find("logit_bias");
  if (!bias) return;
  if (!bias->is_object()) throw wrong_value("logit_bias", "'logit_bias' must be an object of token ids and numbers");
  for (const auto& [key, value] : bias->items()) {
    char* end = nullptr;
    const long long id = std::strtoll(key.c_str(), &end, 10);
    const bool digits = !key.empty() && key.size() <= 10 &&
                        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || id >= model.vocabulary)
      throw wrong_value("logit_bias", key_in_quotes(key) + " is not a token id of the vocabulary");
    sampling->bias.emplace_back(text::TokenId(id), Fields::real_of(value, "logit_bias", -100, 100));
  }
}

void read_sampling(Fields& fields, const ServedModel& model, infer::SamplerOptions* s) {
  s->temperature = fields.real("temperature", 1, 0, 1000);
  s->top_p = fields.real("top_p", 1, kLeastAbove, 1);
  s->top_k = fields.whole("top_k", 0, -1, kMostNumber);
  s->top_k = std::max<int64_t>(0, s->top_k);
  s->min_p = fields.real("min_p", 0, 0, 1 - kLeastAbove);
  s->typical_p = fields.real("typical_p", 1, kLeastAbove, 1);
  s->top_n_sigma = fields.real("top_n_sigma", 0, 0, 1000);
  s->xtc_probability = fields.real("xtc_probability", 0, 0, 1);
  s->xtc_threshold = fields.real("xtc_threshold", 0.1, kLeastAbove, 1);
  s->mirostat = int(fields.whole("mirostat", 0, 0, 2));
  s->mirostat_entropy = fields.real("mirostat_tau", 5, kLeastAbove, 1000);
  s->mirostat_rate = fields.real("mirostat_eta", 0.1, kLeastAbove, 1000);
  s->presence_penalty = fields.real("presence_penalty", 0, -1000, 1000);
  s->frequency_penalty = fields.real("frequency_penalty", 0, -1000, 1000);
  if (fields.find("repetition_penalty") && fields.find("repeat_penalty"))
    throw wrong_value("repeat_penalty", "one of 'repetition_penalty' and 'repeat_penalty', which are the same");
  const double repetition = fields.real("repetition_penalty", 1, kLeastAbove, 1000);
  s->repeat_penalty = fields.real("repeat_penalty", repetition, kLeastAbove, 1000);
  s->repeat_last = fields.whole("repeat_last_n", s->repeat_last, -1, kMostNumber);
  read_dry(fields, model, s);
  read_bias(fields, model, s);
  const std::optional<uint32_t> seed = read_seed(fields);
  s->seed = seed ? *seed : uint32_t(std::random_device{}());
}

std::vector<std::string> read_stops(Fields& fields) {
  const ordered_json* stop = fields.find("stop");
  if (!stop) return {};
  const ordered_json list = stop->is_string() ? ordered_json::array({*stop}) : *stop;
  if (!list.is_array() || std::ssize(list) > kMostStops)
    throw wrong_value("stop", fmt::format("'stop' must be a string or a list of up to {} strings", kMostStops));
  std::vector<std::string> out;
  for (const auto& one : list) {
    if (!one.is_string() || one.get_ref<const std::string&>().size() > kLongestStop)
      throw wrong_value("stop", fmt::format("each string of 'stop' has at most {} bytes", kLongestStop));
    if (one.get_ref<const std::string&>().empty()) throw wrong_value("stop", "an empty string in 'stop' ends nothing");
    out.push_back(one);
  }
  return out;
}

// The schema of a response format: a JSON schema given as {"type": "json_schema", "json_schema": {"name", "schema",
// ..}}, or any object. Null: any text.
ordered_json schema_of_format(const ordered_json& format) {
  const auto bad = [](const std::string& message) { return wrong_value("response_format", message); };
  if (!format.is_object() || !format.contains("type") || !format["type"].is_string())
    throw bad("'response_format' must be an object with a 'type'");
  const std::string type = format["type"];
  for (const auto& [key, value] : format.items())
    if (key != "type" && !(type == "json_schema" && key == "json_schema"))
      throw bad("'response_format' of this type has no " + key_in_quotes(key));
  if (type == "text") return nullptr;
  if (type == "json_object") return {{"type", "object"}};
  if (type != "json_schema") throw bad("'response_format' has no type " + key_in_quotes(type));
  const auto given = format.find("json_schema");
  if (given == format.end() || !given->is_object() || !given->contains("schema") || (*given)["schema"].is_null())
    throw bad("'response_format' of this type needs {'json_schema': {'schema': ..}}");
  for (const auto& [key, value] : given->items())
    if (key != "schema" && key != "name" && key != "strict" && key != "description")
      throw bad("'json_schema' has no " + key_in_quotes(key));
  return (*given)["schema"];
}

bool is_strict(const ordered_json& about) {
  return about.is_object() && about.value("strict", ordered_json()) == true;
}

// Compiles the schemas of the answer (null: none) and of the functions to a grammar.
void read_schemas(const ordered_json& schema, bool is_strict_answer, const std::function<bool()>& is_stopped,
                  GenerationRequest* out) {
  const infer::SchemaOptions options{.is_stopped = is_stopped};
  out->schemas = std::make_shared<SchemaReport>();
  std::vector<std::string> relaxed;
  if (!out->calls) {
    out->generate.grammar = schema_grammar(schema, options, &relaxed);
    return out->schemas->add_answer(schema, relaxed, is_strict_answer);
  }
  std::optional<infer::SchemaRules> otherwise;
  if (!schema.is_null()) {
    otherwise = schema_rules(schema, "o", options);
    out->schemas->add_answer(schema, otherwise->relaxed, is_strict_answer);
  }
  // An answer in JSON may look like a call that lacks its mark.
  const auto plan = std::make_shared<CallPlan>(*out->calls);
  plan->reads_bare = !plan->is_needed && !otherwise;
  out->calls = plan;
  std::map<std::string, std::vector<std::string>> of_functions;
  out->generate.grammar = call_grammar(*out->calls, otherwise, options, &of_functions);
  for (const OfferedTool& tool : out->calls->tools)
    out->schemas->add_function(tool.name, tool.parameters, of_functions[tool.name], tool.is_strict);
}

void read_grammar(Fields& fields, const ServedModel& model, const std::function<bool()>& is_stopped,
                  GenerationRequest* out) {
  const ordered_json *format = fields.find("response_format"), *grammar = fields.find("grammar");
  if (format && grammar) throw wrong_value("grammar", "one of 'response_format' and 'grammar'");
  const char* name = format ? "response_format" : "grammar";
  if (grammar && !grammar->is_string()) throw wrong_value("grammar", "'grammar' must be a string");
  if (grammar && out->calls) throw wrong_value("grammar", "'grammar' and 'tools' exclude each other");
  try {
    const ordered_json schema = format ? schema_of_format(*format) : ordered_json();
    if (out->calls && !format) name = "tools";
    if (out->calls || !schema.is_null()) {
      read_schemas(schema, format && is_strict(format->value("json_schema", ordered_json())), is_stopped, out);
    } else if (grammar) {
      out->generate.grammar = *grammar;
    }
    if (out->generate.grammar.empty()) return;
    const bool controls = out->calls && !out->calls->form.controls.empty();
    out->constraint = model.constraint(out->generate.grammar, controls);
    // A grammar with too many alternatives at its start fails here, not in the batch.
    infer::GrammarMatcher(out->constraint->states);
  } catch (const Error& error) {
    throw wrong_value(name, error.what());
  }
}

// The smallest of several limits holds. -1: as many tokens as fit.
void read_length(Fields& fields, const ServedModel& model, std::initializer_list<const char*> names, int64_t usual,
                 GenerationRequest* out) {
  const int64_t most = model.most_tokens > 0 ? model.most_tokens : kMostNumber;
  const int64_t as_fits = model.most_tokens > 0 ? model.most_tokens : -1;
  std::optional<int64_t> given;
  for (const char* name : names) {
    const ordered_json* value = fields.find(name);
    if (!value) continue;
    const bool is_open = value->is_number_integer() && *value == -1;
    const int64_t length = is_open ? as_fits : fields.whole(name, 0, out->is_chat ? 1 : 0, most);
    given = !given || *given < 0 ? length : length < 0 ? *given : std::min(*given, length);
  }
  const int64_t least = out->generate.least;
  out->generate.predict = given ? *given : usual < 0 ? as_fits : std::min(std::max(usual, least), most);
  if (out->generate.predict >= 0 && least > out->generate.predict)
    throw wrong_value("min_tokens", fmt::format("'min_tokens' is {}, but the output has {} tokens at most", least,
                                                out->generate.predict));
}

// Reads the parameters shared by chats and completions.
void read_writing(Fields& fields, const ServedModel& model, FieldNotes* notes, const std::function<bool()>& is_stopped,
                  GenerationRequest* out) {
  if (model.longest == 0) throw Refusal(400, "this model generates no text", "model", "unsupported_model");
  read_sampling(fields, model, &out->sampling);
  out->generate.stops = read_stops(fields);
  out->generate.ends = read_end_ids(fields, model);
  out->generate.ignore_end = fields.boolean("ignore_eos", false);
  out->generate.least = fields.whole("min_tokens", 0, 0, kMostNumber);
  read_grammar(fields, model, is_stopped, out);
  out->n = fields.whole("n", 1, 1, model.most_outputs);
  out->stream = fields.boolean("stream", false);
  if (const ordered_json* options = fields.find("stream_options")) {
    if (!options->is_object()) throw wrong_value("stream_options", "'stream_options' must be an object");
    if (!out->stream) throw wrong_value("stream_options", "'stream_options' requires 'stream'");
    Fields more(*options, notes);
    out->include_usage = more.boolean("include_usage", false);
    more.ignore({"include_obfuscation"});
    more.settle_others();
  }
  // Prompts are always cached, nothing is stored, and no prompt is truncated.
  fields.ignore({"model", "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "cache_prompt", "store"});
}

// Normalizes messages for templates. A strict server refuses what would be repaired otherwise. `pictures` gets those of
// the messages.
ordered_json plain_messages(const ordered_json* messages, const ServedModel& model, FieldNotes* notes,
                            std::vector<PicturePart>* pictures) {
  if (!messages || !messages->is_array() || messages->empty())
    throw wrong_value("messages", "'messages' must be a list of messages");
  try {
    ordered_json given = *messages;
    if (!notes->is_strict) {
      RepairedMessages repaired = repaired_messages(given);
      for (const std::string& change : repaired.changes) notes->add(change);
      given = std::move(repaired.messages);
    }
    *pictures = take_pictures(given);
    const ordered_json normal = normal_messages(given, templates::OtherKeys::refused, templates::PictureParts::kept);
    return model.chat ? mapped_roles(normal, model.traits()->roles, *model.chat) : normal;
  } catch (const templates::MessageFault& fault) {
    throw wrong_value("messages", fault.reason + (fault.detail.empty() ? "" : ": ") + fault.detail);
  } catch (const PictureFault& fault) {
    throw wrong_value("messages", fault.what());
  }
}

OfferedTool offered_tool(const ordered_json& tool, FieldNotes* notes) {
  const bool is_function = tool.is_object() && tool.value("type", ordered_json()) == "function" &&
                           tool.contains("function") && tool["function"].is_object();
  if (!is_function) throw wrong_value("tools", "'tools' are {'type': 'function', 'function': {'name', 'parameters'}}");
  const ordered_json& function = tool["function"];
  const auto other = [&](const std::string& message) {
    if (notes->is_strict) throw wrong_value("tools", message);
    notes->add(message);
  };
  for (const auto& [key, value] : tool.items())
    if (key != "type" && key != "function" && !value.is_null()) other("a tool has no " + key_in_quotes(key));
  for (const auto& [key, value] : function.items())
    if (key != "name" && key != "description" && key != "parameters" && key != "strict" && !value.is_null())
      other("a function has no " + key_in_quotes(key));
  const std::string name = function.value("name", ordered_json()).is_string() ? function["name"] : "";
  const bool fits = !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
  if (!fits)
    throw wrong_value("tools",
                      fmt::format("the name of a function has up to {} letters, digits, _, - and .", kLongestName));
  if (!function.value("description", ordered_json("")).is_string() && !function["description"].is_null())
    throw wrong_value("tools", "the 'description' of a function must be a string");
  OfferedTool out{name, {{"type", "object"}, {"properties", ordered_json::object()}}, is_strict(function)};
  if (function.contains("parameters") && !function["parameters"].is_null()) out.parameters = function["parameters"];
  if (!out.parameters.is_object() || out.parameters.value("type", ordered_json("object")) != "object")
    throw wrong_value("tools", "the 'parameters' of a function are a JSON schema of an object");
  // A schema without properties allows no members: functions without parameters are declared so.
  if (!out.parameters.contains("properties") && !out.parameters.contains("additionalProperties"))
    out.parameters["additionalProperties"] = false;
  if (out.parameters.value("type", ordered_json()) != "object") out.parameters["type"] = "object";
  return out;
}

// Restricts the callable functions: {"type": "function", "function": {"name"}} selects one.
void read_choice(const ordered_json* choice, CallPlan* plan) {
  if (!choice || *choice == "auto") return;
  if (*choice == "required") {
    plan->is_needed = true;
    return;
  }
  const bool is_named = choice->is_object() && choice->value("type", ordered_json()) == "function" &&
                        choice->contains("function") && (*choice)["function"].is_object() &&
                        (*choice)["function"].value("name", ordered_json()).is_string();
  if (!is_named)
    throw wrong_value("tool_choice",
                      "'tool_choice' must be 'auto', 'none', 'required' or {'type': 'function', 'function': {'name'}}");
  std::erase_if(plan->tools, [&](const OfferedTool& tool) { return (*choice)["function"]["name"] != tool.name; });
  if (plan->tools.empty()) throw wrong_value("tool_choice", "'tool_choice' names no function of 'tools'");
  plan->is_needed = plan->is_one = true;
}

// The tools that are functions. Others, such as "web_search", run in the services of other servers: no model can call
// them here.
ordered_json functions_of(const ordered_json& tools, FieldNotes* notes) {
  ordered_json out = ordered_json::array();
  for (const auto& tool : tools) {
    const ordered_json type = tool.is_object() ? tool.value("type", ordered_json()) : ordered_json();
    if (!type.is_string() || type == "function") {
      out.push_back(tool);
      continue;
    }
    const std::string message =
        "tools of the type " + key_in_quotes(type) + " are ignored; only functions can be called";
    if (notes->is_strict) throw Refusal(400, message, "tools", "unsupported_parameter");
    notes->add(message);
  }
  return out;
}

// Reads the functions that a chat may call; `more` gets them for the template.
void read_tools(Fields& fields, const ServedModel& model, FieldNotes* notes, GenerationRequest* out,
                ordered_json* more) {
  const ordered_json *given = fields.find("tools"), *choice = fields.find("tool_choice");
  const bool may_be_many = fields.boolean("parallel_tool_calls", true);
  fields.only("functions", {ordered_json::array()});
  fields.only("function_call", {"none", "auto"});
  if (given && !given->is_array()) throw wrong_value("tools", "'tools' must be a list");
  const ordered_json tools = given ? functions_of(*given, notes) : ordered_json::array();
  if (tools.empty()) {
    if (choice && *choice != "none" && *choice != "auto")
      throw wrong_value("tool_choice", given && !given->empty() ? "'tool_choice' requires a tool that is no function"
                                                                : "'tool_choice' without 'tools'");
    return;
  }
  if (std::ssize(tools) > kMostTools) throw wrong_value("tools", fmt::format("'tools' has more than {}", kMostTools));
  auto plan = std::make_shared<CallPlan>();
  std::set<std::string> names;
  for (const auto& tool : tools) {
    plan->tools.push_back(offered_tool(tool, notes));
    if (!names.insert(plan->tools.back().name).second)
      throw wrong_value("tools", "two functions are named " + key_in_quotes(plan->tools.back().name));
  }
  if (choice && *choice == "none") return;
  if (!model.calls)
    throw Refusal(400, "this model's chat template does not support tools (choose another one with --chat-template)",
                  "tools", "unsupported_parameter");
  plan->form = *model.calls;
  plan->is_one = !may_be_many;
  read_choice(choice, plan.get());
  (*more)["tools"] = tools;
  out->calls = std::move(plan);
}

// {"type": "content", "content": TEXT}: a prediction of the output (OpenAI's predicted outputs). It speeds up matching
// outputs and never changes the output.
void read_prediction(Fields& fields, const ServedModel& model, GenerationRequest* out) {
  const std::string name = "prediction";
  const ordered_json* prediction = fields.find(name);
  if (!prediction) return;
  const bool has_content = prediction->is_object() && prediction->value("type", ordered_json()) == "content" &&
                           prediction->contains("content");
  if (!has_content) throw wrong_value(name, "'prediction' must be {'type': 'content', 'content': TEXT}");
  for (const auto& [key, value] : prediction->items())
    if (key != "type" && key != "content") throw wrong_value(name, "a prediction has no " + key_in_quotes(key));
  std::string text;
  try {
    text = templates::content_text((*prediction)["content"], "prediction");
  } catch (const templates::MessageFault& fault) {
    throw wrong_value(name, fault.reason);
  }
  std::vector<text::TokenId> tokens;
  if (!text.empty()) tokens = ids_of(text, name, model, false);
  if (std::ssize(tokens) > model.longest)
    throw Refusal(400,
                  fmt::format("the prediction has {} tokens, but the context holds {}", tokens.size(), model.longest),
                  name, "context_length_exceeded");
  out->expected = std::make_shared<const std::vector<text::TokenId>>(std::move(tokens));
}

}  // namespace

Refusal::Refusal(int status_, const std::string& message, const std::string& param_, std::string code_)
    : std::runtime_error(text::utf8_repair(message)),
      status(status_),
      param(text::utf8_repair(param_)),
      code(std::move(code_)) {}

std::string Refusal::body() const {
  const char* type = status == 401   ? "authentication_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  const auto or_null = [](const std::string& text) { return text.empty() ? ordered_json() : ordered_json(text); };
  ordered_json error;
  error["message"] = what();
  error["type"] = type;
  error["param"] = or_null(param);
  error["code"] = or_null(code);
  return ordered_json{{"error", error}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::shared_ptr<const infer::TokenStrings> ServedModel::token_strings(bool controls) const {
  const std::lock_guard lock(mutex_);
  auto& strings = token_strings_[controls ? 1 : 0];
  if (!strings) strings = std::make_shared<const infer::TokenStrings>(tokenizer, controls);
  return strings;
}

std::shared_ptr<const std::vector<text::TokenId>> ServedModel::tokens_with(
    const std::vector<std::string>& strings) const {
  {
    const std::lock_guard lock(mutex_);
    if (tokens_with_.second && tokens_with_.first == strings) return tokens_with_.second;
  }
  auto found = std::make_shared<const std::vector<text::TokenId>>(model::infer::tokens_with(tokenizer, strings));
  const std::lock_guard lock(mutex_);
  tokens_with_ = {strings, found};
  return found;
}

std::shared_ptr<const ChatTraits> ServedModel::traits() const {
  const std::lock_guard lock(mutex_);
  if (!traits_) traits_ = std::make_shared<const ChatTraits>(ChatTraits{learn_roles(*chat), learn_reasoning(*chat)});
  return traits_;
}

void FieldNotes::add(const std::string& warning) {
  if (std::find(warnings.begin(), warnings.end(), warning) != warnings.end()) return;
  if (warnings.size() < kMostWarnings) warnings.push_back(text::utf8_repair(warning));
  static std::mutex mutex;
  static std::set<std::string> logged;
  const std::lock_guard lock(mutex);
  if (logged.size() < kMostLogged && logged.insert(warning).second) note("a request: " + printable(warning));
}

ordered_json request_object(std::string_view body) {
  try {
    ordered_json out = parse_ordered_json(body, "the request", kDeepestRequest);
    if (!out.is_object()) throw Refusal(400, "the request is not a JSON object", {}, "invalid_json");
    return out;
  } catch (const Error& error) {
    throw Refusal(400, error.what(), {}, "invalid_json");
  }
}

std::string request_model(const ordered_json& body) {
  const auto model = body.find("model");
  if (model == body.end() || model->is_null()) return {};
  if (!model->is_string()) throw wrong_value("model", "'model' must be a string");
  return *model;
}

namespace {

// Splits reasoning from the output, and lets a grammar begin after it. `is_free`: the grammar allows any text before
// calls, which includes reasoning.
void split_reasoning(const ServedModel& model, const templates::ChatPrompt& prompt, const ReasoningWish& wish,
                     bool is_free, GenerationRequest* out) {
  const ReasoningForm form = model.traits()->reasoning;
  if (!form.marks) return;
  const std::string_view text = prompt.text, answer = text.substr(prompt.answer);
  const size_t open = answer.rfind(form.marks->open), close = answer.rfind(form.marks->close);
  const bool closes = close != std::string_view::npos && (open == std::string_view::npos || open < close);
  const std::string_view before = text.substr(0, prompt.answer);
  const bool is_open = !closes && (open != std::string_view::npos || opens_reasoning(*form.marks, before));
  out->generate.shown = form.controls;
  const bool has_channels = !form.marks->answer.empty();
  // In channels the end of a message ends reasoning, also before a call.
  const std::string call = out->calls && !has_channels ? out->calls->form.open : "";
  out->reasoning.emplace(*form.marks, is_open, call);
  // Control tokens are allowed in grammars only where answers cannot do without them.
  const bool shows_marks = form.controls.empty() || has_channels;
  if (out->constraint && is_open && !shows_marks) out->reasoning.reset();  // no output can close it
  if (!out->constraint || is_free || !shows_marks || (!is_open && wish.is_on == false)) return;
  // After closed reasoning, as templates write it by default or for a continued answer, no more of it is wanted.
  if (!has_channels && (closes || closes_reasoning(*form.marks, before))) return;
  ReasoningMarks marks = *form.marks;
  if (out->calls) marks.answer.clear();  // calls have channels of their own
  out->generate.grammar = grammar_after_reasoning(out->generate.grammar, marks, is_open);
  const bool controls = !form.controls.empty() || (out->calls && !out->calls->form.controls.empty());
  out->constraint = model.constraint(out->generate.grammar, controls);
}

}  // namespace

GenerationRequest read_chat(const ordered_json& given, const ServedModel& model, FieldNotes* notes,
                            const std::function<bool()>& is_stopped) {
  FieldNotes own{model.is_strict, {}};
  if (!notes) notes = &own;
  const std::optional<ordered_json> guided = without_guides(given);
  const ordered_json& body = guided ? *guided : given;
  GenerationRequest out;
  out.is_chat = true;
  Fields fields(body, notes);
  ordered_json more = ordered_json::object();
  read_tools(fields, model, notes, &out, &more);
  read_writing(fields, model, notes, is_stopped, &out);
  read_length(fields, model, {"max_tokens", "max_completion_tokens"}, -1, &out);
  const bool told = fields.boolean("logprobs", false);
  out.top = told ? 0 : -1;
  if (const int64_t top = fields.whole("top_logprobs", 0, 0, kMostTop); told)
    out.top = top;
  else if (top > 0)
    throw wrong_value("top_logprobs", "'top_logprobs' requires 'logprobs': true");
  read_prediction(fields, model, &out);
  fields.only("modalities", {ordered_json::array({"text"})});
  if (const ordered_json* values = fields.find("chat_template_kwargs")) {
    if (!values->is_object()) throw wrong_value("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    for (const char* own_name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
      if (values->contains(own_name))
        throw wrong_value("chat_template_kwargs", key_in_quotes(own_name) + " cannot be set by requests");
    more.update(*values);
  }
  const templates::PromptEnd end = read_prompt_end(fields);
  const ReasoningWish wish = read_reasoning(fields, notes);
  fields.only("truncation", {"disabled", "auto"});
  std::vector<PicturePart> parts;
  const ordered_json messages = plain_messages(fields.find("messages"), model, notes, &parts);
  fields.settle_others();
  if (!model.chat) throw Refusal(400, "this model has no chat template", "model", "unsupported_model");
  out.pictures = read_pictures(parts, model, notes, is_stopped);
  grant(wish, model.traits()->reasoning, &more, notes);
  try {
    templates::ChatPrompt prompt =
        parts.empty() ? model.chat->prompt(messages, more, end)
                      : picture_prompt(*model.chat, messages, more, end, model.pictures->tower->text());
    const bool is_free = out.calls && !out.calls->is_needed && !fields.find("response_format");
    split_reasoning(model, prompt, wish, is_free, &out);
    out.prompts.push_back(parts.empty() ? std::move(prompt.ids) : placed(prompt.ids, out.pictures, model));
  } catch (const Error& error) {
    throw wrong_value("messages", error.what());
  }
  out.echoed.emplace_back();
  check_length(out.prompts[0], model.longest, "messages");
  out.generate.stops.insert(out.generate.stops.end(), model.chat_stops.begin(), model.chat_stops.end());
  out.warnings = notes->warnings;
  return out;
}

GenerationRequest read_completion(const ordered_json& given, const ServedModel& model,
                                  const std::function<bool()>& is_stopped) {
  FieldNotes notes{model.is_strict, {}};
  const std::optional<ordered_json> guided = without_guides(given);
  const ordered_json& body = guided ? *guided : given;
  GenerationRequest out;
  Fields fields(body, &notes);
  read_writing(fields, model, &notes, is_stopped, &out);
  read_length(fields, model, {"max_tokens"}, kUsualCompletion, &out);
  out.echo = fields.boolean("echo", false);
  out.top = fields.whole("logprobs", -1, 0, kMostTop);
  fields.only("suffix", {""});
  fields.only("best_of", {1, out.n});
  read_inputs(fields.find("prompt"), "prompt", model, model.longest, model.most_outputs, &out.prompts, &out.echoed);
  fields.settle_others();
  out.warnings = notes.warnings;
  if (std::ssize(out.prompts) * out.n > model.most_outputs)
    throw wrong_value("n", fmt::format("a request may have at most {} outputs", model.most_outputs));
  if (!out.echo)
    for (std::string& text : out.echoed) text.clear();
  return out;
}

EmbeddingRequest read_embedding(const ordered_json& body, const ServedModel& model) {
  if (model.longest_read == 0)
    throw Refusal(400, "this model's family does not define hidden states", "model", "unsupported_model");
  EmbeddingRequest out;
  FieldNotes notes{model.is_strict, {}};
  Fields fields(body, &notes);
  fields.only("dimensions", {});
  read_inputs(fields.find("input"), "input", model, model.longest_read, kMostInputs, &out.inputs, nullptr);
  if (const ordered_json* form = fields.find("encoding_format")) {
    if (*form != "float" && *form != "base64")
      throw wrong_value("encoding_format", "'encoding_format' must be 'float' or 'base64'");
    out.base64 = *form == "base64";
  }
  fields.ignore({"model", "user"});
  fields.settle_others();
  out.warnings = std::move(notes.warnings);
  return out;
}

std::vector<text::TokenId> read_tokenize(const ordered_json& body, const ServedModel& model) {
  FieldNotes notes{model.is_strict, {}};
  Fields fields(body, &notes);
  const ordered_json *prompt = fields.find("prompt"), *content = fields.find("content");
  const ordered_json* text = prompt ? prompt : content;
  if (!text || (prompt && content) || !text->is_string()) throw wrong_value("prompt", "'prompt' must be a string");
  const bool special = fields.boolean("add_special", true);
  const bool add = fields.boolean("add_special_tokens", special);
  fields.ignore({"model"});
  fields.settle_others();
  return ids_of(text->get_ref<const std::string&>(), "prompt", model, add);
}

std::vector<text::TokenId> read_detokenize(const ordered_json& body, const ServedModel& model) {
  FieldNotes notes{model.is_strict, {}};
  Fields fields(body, &notes);
  const ordered_json* tokens = fields.find("tokens");
  if (!tokens || !tokens->is_array()) throw wrong_value("tokens", "'tokens' must be a list of token ids");
  std::vector<text::TokenId> ids = ids_of(*tokens, "tokens", model);
  for (const text::TokenId id : ids)
    if (!model.tokenizer.has(id)) throw wrong_value("tokens", fmt::format("{} is not a token of the vocabulary", id));
  fields.ignore({"model"});
  fields.settle_others();
  return ids;
}

}  // namespace lumen::model::serve
