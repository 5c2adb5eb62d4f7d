#include "model/serve/reply.h"

#include <bit>
#include <random>

#include "base/structured/base64.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

// Counts the characters that start in `bytes`.
int64_t characters_begun(std::string_view bytes) {
  int64_t count = 0;
  for (const char c : bytes) count += (uint8_t(c) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

}  // namespace

std::string reply_id(const std::string& prefix) {
  std::random_device device;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

std::string json_line(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Reply::Reply(const GenerationRequest& request, const ServedModel& model, int64_t created)
    : model_(model),
      is_chat_(request.is_chat),
      include_usage_(request.include_usage),
      top_(request.top),
      n_(request.n),
      created_(created),
      id_(reply_id(request.is_chat ? "chatcmpl-" : "cmpl-")),
      warnings_(request.warnings),
      schemas_(request.schemas),
      outputs_(request.prompts.size() * request.n),
      tells_drafts_(model.has_draft || request.expected) {
  for (const auto& prompt : request.prompts) prompt_tokens_ += std::ssize(prompt);
  for (Output& output : outputs_) {
    output.logprobs = no_logprobs();
    output.splitter = request.reasoning;
    if (request.calls) output.reader.emplace(request.calls);
  }
}

const char* Reply::finish_reason(const Output& output) const {
  const infer::EndReason reason = output.reason;
  const bool stopped = reason == infer::EndReason::end_token || reason == infer::EndReason::stop_string ||
                       reason == infer::EndReason::grammar;
  return !stopped ? "length" : output.calls.empty() ? "stop" : "tool_calls";
}

void Reply::put_schema_report(const Output& output, ordered_json* out) const {
  if (!schemas_) return;
  std::vector<std::pair<std::string, std::string>> calls;
  for (const Call& call : output.calls) calls.emplace_back(call.name, call.arguments);
  if (ordered_json report = schemas_->of(output.text, calls); !report.is_null())
    (*out)["lumen"]["schema"] = std::move(report);
}

std::vector<CallPiece> Reply::take(const Delta& delta) {
  Output& output = outputs_.at(delta.index);
  if (delta.ended) {
    output.is_over = true;
    output.reason = delta.answer.reason;
    output.stop = delta.answer.stop;
    output.out_of_time = delta.out_of_time;
    ++ended_;
    made_tokens_ += delta.answer.made;
    drafted_tokens_ += delta.answer.drafted;
    accepted_tokens_ += delta.answer.accepted;
    if (delta.index % n_ == 0) cached_tokens_ += delta.answer.shared;
    if (delta.index % n_ == 0) disk_tokens_ += delta.answer.from_disk;
  }
  std::vector<CallPiece> out;
  std::string text = delta.text;
  if (output.splitter) {
    ReasoningReader::Piece split = output.splitter->push(text);
    if (delta.ended) {
      const ReasoningReader::Piece rest = output.splitter->finish();
      split.reasoning += rest.reasoning;
      split.text += rest.text;
    }
    if (!split.reasoning.empty()) out.push_back({CallPiece::Kind::reasoning, std::move(split.reasoning)});
    text = std::move(split.text);
  }
  if (output.reader) {
    for (CallPiece& piece : output.reader->push(text)) out.push_back(std::move(piece));
    if (delta.ended)
      for (CallPiece& piece : output.reader->finish()) out.push_back(std::move(piece));
  } else if (!text.empty()) {
    out.push_back({CallPiece::Kind::text, std::move(text)});
  }
  for (const CallPiece& piece : out) {
    if (piece.kind == CallPiece::Kind::text)
      output.text += piece.text;
    else if (piece.kind == CallPiece::Kind::reasoning)
      output.reasoning += piece.text;
    else if (piece.kind == CallPiece::Kind::begin)
      output.calls.push_back({reply_id("call_"), piece.text, {}});
    else
      output.calls.back().arguments += piece.text;
  }
  return out;
}

ordered_json Reply::head(const char* kind) const {
  ordered_json out;
  out["id"] = id_;
  out["object"] = kind;
  out["created"] = created_;
  out["model"] = model_.name;
  return out;
}

ordered_json Reply::usage() const {
  ordered_json out;
  out["prompt_tokens"] = prompt_tokens_;
  out["completion_tokens"] = made_tokens_;
  out["total_tokens"] = prompt_tokens_ + made_tokens_;
  out["prompt_tokens_details"] = {{"cached_tokens", cached_tokens_}};
  if (const int64_t reasoning = reasoning_tokens(); reasoning > 0)
    out["completion_tokens_details"]["reasoning_tokens"] = reasoning;
  if (tells_drafts_) {
    out["completion_tokens_details"]["accepted_prediction_tokens"] = accepted_tokens_;
    out["completion_tokens_details"]["rejected_prediction_tokens"] = drafted_tokens_ - accepted_tokens_;
  }
  return out;
}

int64_t Reply::reasoning_tokens() const {
  int64_t count = 0;
  for (const Output& output : outputs_)
    if (!output.reasoning.empty()) count += std::ssize(model_.tokenizer.encode(output.reasoning));
  return std::min(count, made_tokens_);
}

ordered_json Reply::no_logprobs() const {
  if (top_ < 0) return nullptr;
  const ordered_json list = ordered_json::array();
  if (is_chat_) return {{"content", list}, {"refusal", nullptr}};
  return {{"tokens", list}, {"token_logprobs", list}, {"top_logprobs", list}, {"text_offset", list}};
}

// The text of a token in completions. Parts of characters are written as bytes, as OpenAI's API does, because different
// tokens would otherwise have the same text.
std::string Reply::token_text(text::TokenId id) const {
  if (!model_.tokenizer.has(id)) return {};
  std::string bytes = model_.tokenizer.bytes(id);
  if (text::utf8_valid_run(bytes, 0) == bytes.size()) return bytes;
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", uint8_t(c));
  return out;
}

ordered_json Reply::chance(text::TokenId id, double value) const {
  const std::string bytes = model_.tokenizer.has(id) ? model_.tokenizer.bytes(id) : std::string();
  ordered_json out;
  out["token"] = text::utf8_repair(bytes);
  out["logprob"] = value;
  out["bytes"] = ordered_json::array();
  for (const char c : bytes) out["bytes"].push_back(uint8_t(c));
  return out;
}

void Reply::put_logprobs(const Delta& delta, int64_t* offset, ordered_json* out) const {
  if (top_ < 0) return;
  for (size_t i = 0; i < delta.tokens.size(); ++i) {
    const auto& token = delta.tokens[i];
    if (is_chat_) {
      ordered_json one = chance(token->id, token->chance);
      one["top_logprobs"] = ordered_json::array();
      for (const auto& [id, value] : token->top) one["top_logprobs"].push_back(chance(id, value));
      (*out)["content"].push_back(std::move(one));
      continue;
    }
    const text::TokenId id = token ? token->id : delta.first;
    (*out)["tokens"].push_back(token_text(id));
    (*out)["token_logprobs"].push_back(token ? ordered_json(token->chance) : ordered_json());
    ordered_json top;
    if (token) {
      top = ordered_json::object();
      for (const auto& [other, value] : token->top)
        top.emplace(token_text(other), value);  // the likelier of equal strings stays
      top.emplace(token_text(id), token->chance);
    }
    (*out)["top_logprobs"].push_back(std::move(top));
    (*out)["text_offset"].push_back(*offset);
    if (model_.tokenizer.has(id)) *offset += characters_begun(model_.tokenizer.bytes(id));
  }
}

void Reply::add(Delta delta) {
  Output& output = outputs_.at(delta.index);
  take(delta);
  put_logprobs(delta, &output.offset, &output.logprobs);
}

ordered_json Reply::message_of(const Output& output) const {
  ordered_json out;
  out["role"] = "assistant";
  out["content"] = output.text.empty() && !output.calls.empty() ? ordered_json() : ordered_json(output.text);
  if (!output.reasoning.empty()) out["reasoning_content"] = output.reasoning;
  out["refusal"] = nullptr;
  for (const Call& call : output.calls) {
    ordered_json one;
    one["id"] = call.id;
    one["type"] = "function";
    one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    out["tool_calls"].push_back(std::move(one));
  }
  return out;
}

ordered_json Reply::whole() const {
  ordered_json out = head(is_chat_ ? "chat.completion" : "text_completion");
  out["choices"] = ordered_json::array();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    ordered_json choice;
    choice["index"] = i;
    if (is_chat_)
      choice["message"] = message_of(output);
    else
      choice["text"] = output.text;
    choice["logprobs"] = output.logprobs;
    choice["finish_reason"] = finish_reason(output);
    put_schema_report(output, &choice);
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = usage();
  if (!warnings_.empty()) out["warnings"] = warnings_;
  return out;
}

// `call`: the index of the tool call that the piece belongs to.
ordered_json Reply::delta_of(const CallPiece& piece, int64_t call, const Output& output) const {
  if (piece.kind == CallPiece::Kind::text) return {{"content", piece.text}};
  if (piece.kind == CallPiece::Kind::reasoning) return {{"reasoning_content", piece.text}};
  ordered_json one;
  one["index"] = call;
  if (piece.kind == CallPiece::Kind::begin) {
    one["id"] = output.calls.at(call).id;
    one["type"] = "function";
    one["function"] = {{"name", piece.text}, {"arguments", ""}};
  } else {
    one["function"] = {{"arguments", piece.text}};
  }
  ordered_json out;
  out["tool_calls"] = ordered_json::array({std::move(one)});
  return out;
}

std::string Reply::event(const ordered_json& value) const {
  return "data: " + json_line(value) + "\n\n";
}

std::string Reply::events(Delta delta) {
  Output& output = outputs_.at(delta.index);
  const char* kind = is_chat_ ? "chat.completion.chunk" : "text_completion";
  const auto chunk = [&](ordered_json choice, const ordered_json& logprobs, const char* reason) {
    choice["logprobs"] = logprobs;
    choice["finish_reason"] = reason ? ordered_json(reason) : ordered_json();
    if (reason) put_schema_report(output, &choice);
    ordered_json out = head(kind);
    out["choices"] = ordered_json::array({std::move(choice)});
    if (include_usage_) out["usage"] = nullptr;
    if (!warns_ && !warnings_.empty()) out["warnings"] = warnings_;
    warns_ = true;
    return event(out);
  };
  const auto choice = [&](const char* key, ordered_json value) {
    ordered_json one;
    one["index"] = delta.index;
    one[key] = std::move(value);
    return one;
  };
  std::string out;
  if (is_chat_ && !output.is_begun)
    out += chunk(choice("delta", {{"role", "assistant"}, {"content", ""}}), nullptr, nullptr);
  output.is_begun = true;
  const auto calls_before = std::ssize(output.calls);
  const std::vector<CallPiece> pieces = take(delta);
  const char* reason = delta.ended ? finish_reason(output) : nullptr;
  const bool says = !delta.text.empty() || !delta.tokens.empty();
  ordered_json logprobs = says ? no_logprobs() : ordered_json();
  if (says) put_logprobs(delta, &output.offset, &logprobs);
  if (is_chat_) {
    int64_t call = calls_before - 1;
    if (pieces.empty() && !delta.tokens.empty()) out += chunk(choice("delta", {{"content", ""}}), logprobs, nullptr);
    for (const CallPiece& piece : pieces) {
      call += piece.kind == CallPiece::Kind::begin ? 1 : 0;
      out += chunk(choice("delta", delta_of(piece, call, output)), logprobs, nullptr);
      logprobs = nullptr;
    }
    if (reason) out += chunk(choice("delta", ordered_json::object()), nullptr, reason);
  } else {
    out += chunk(choice("text", delta.text), logprobs, reason);
  }
  return out;
}

std::string Reply::last_events() {
  std::string out;
  if (include_usage_) {
    ordered_json last = head(is_chat_ ? "chat.completion.chunk" : "text_completion");
    last["choices"] = ordered_json::array();
    last["usage"] = usage();
    out += event(last);
  }
  return out + "data: [DONE]\n\n";
}

std::string Reply::failed_events(const Refusal& refusal) const {
  return "data: " + refusal.body() + "\n\ndata: [DONE]\n\n";
}

std::string Reply::endings() const {
  std::string out;
  for (const Output& output : outputs_) {
    if (!out.empty()) out += ",";
    out += !output.is_over ? "cut" : output.out_of_time ? "time" : reason_name(output.reason);
  }
  return out;
}

ordered_json embedding_reply(const EmbeddingRequest& request, const ServedModel& model,
                             const std::vector<std::vector<float>>& vectors) {
  ordered_json out;
  out["object"] = "list";
  out["data"] = ordered_json::array();
  int64_t tokens = 0;
  for (size_t i = 0; i < vectors.size(); ++i) {
    tokens += std::ssize(request.inputs[i]);
    ordered_json one;
    one["object"] = "embedding";
    one["index"] = i;
    if (request.base64) {
      std::string bytes;  // f32, little-endian
      for (const float x : vectors[i])
        for (int byte = 0; byte < 4; ++byte) bytes.push_back(char(std::bit_cast<uint32_t>(x) >> 8 * byte & 0xff));
      one["embedding"] = encode_base64(bytes);
    } else {
      one["embedding"] = vectors[i];
    }
    out["data"].push_back(std::move(one));
  }
  out["model"] = model.name;
  out["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  if (!request.warnings.empty()) out["warnings"] = request.warnings;
  return out;
}

ordered_json tokenize_reply(const std::vector<text::TokenId>& tokens, const ServedModel& model) {
  ordered_json out;
  out["count"] = tokens.size();
  out["max_model_len"] = std::max(model.longest, model.longest_read);
  out["tokens"] = tokens;
  return out;
}

ordered_json tokenizer_reply(const ServedModel& model) {
  const text::Tokenizer& tokenizer = model.tokenizer;
  const auto name = [&](std::optional<text::TokenId> id) {
    return id && tokenizer.has(*id) ? ordered_json(text::utf8_repair(tokenizer.bytes(*id))) : ordered_json();
  };
  ordered_json out;
  out["tokenizer_class"] = "LumenTokenizer";
  out["bos_token"] = name(tokenizer.bos());
  out["eos_token"] = name(tokenizer.eos());
  out["add_bos_token"] = tokenizer.adds_bos();
  out["add_eos_token"] = tokenizer.adds_eos();
  out["vocab_size"] = tokenizer.size();
  out["model_max_length"] = std::max(model.longest, model.longest_read);
  out["chat_template"] = tokenizer.chat_template().empty() ? ordered_json() : ordered_json(tokenizer.chat_template());
  return out;
}

ordered_json detokenize_reply(const std::vector<text::TokenId>& tokens, const ServedModel& model) {
  const std::string text = text::utf8_repair(model.tokenizer.decode(tokens, false));
  ordered_json out;
  out["prompt"] = text;
  out["content"] = text;
  return out;
}

ordered_json model_reply(const ServedModel& model, int64_t created) {
  ordered_json out;
  out["id"] = model.name;
  out["object"] = "model";
  out["created"] = created;
  out["owned_by"] = "lumen";
  out["max_model_len"] = std::max(model.longest, model.longest_read);
  out["input_modalities"] = {"text"};
  if (model.pictures) out["input_modalities"].push_back("image");
  return out;
}

ordered_json models_reply(const std::vector<const ServedModel*>& models, int64_t created) {
  ordered_json out;
  out["object"] = "list";
  out["data"] = ordered_json::array();
  for (const ServedModel* model : models) out["data"].push_back(model_reply(*model, created));
  return out;
}

}  // namespace lumen::model::serve
