// Replies in the formats of OpenAI's API: a complete response, or a stream of events. Proved by
// tests/model/serve/reply_test.cpp.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/serve/request.h"
#include "model/serve/scheduler.h"

namespace lumen::model::serve {

// "chatcmpl-1f3c..": a unique id.
std::string reply_id(const std::string& prefix);

// One line of JSON. Invalid UTF-8 is replaced by U+FFFD.
std::string json_line(const nlohmann::ordered_json& value);

// Accumulates the answer to a GenerationRequest. Other APIs derive their formats from it.
class Reply {
 public:
  // `created`: seconds since 1970.
  Reply(const GenerationRequest& request, const ServedModel& model, int64_t created);
  virtual ~Reply() = default;

  virtual void add(Delta delta);
  bool has_ended() const { return ended_ == std::ssize(outputs_); }
  virtual nlohmann::ordered_json whole() const;
  virtual const char* stream_type() const { return "text/event-stream"; }
  // Events of a stream ("data: {..}\n\n"): `events` adds a delta and returns its events; first_events come before and
  // last_events after all others; failed_events end a failed request.
  virtual std::string first_events() { return {}; }
  virtual std::string events(Delta delta);
  virtual std::string last_events();
  virtual std::string failed_events(const Refusal& refusal) const;

  const std::string& id() const { return id_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t cached_tokens() const { return cached_tokens_; }
  int64_t disk_tokens() const { return disk_tokens_; }  // part of the cached ones, read from files
  int64_t made_tokens() const { return made_tokens_; }
  std::string endings() const;  // the reasons its outputs ended, for logs: "end", "limit", "time", ..

 protected:
  struct Call {
    std::string id, name, arguments;
  };
  struct Output {
    std::string text, reasoning;
    std::optional<ReasoningReader> splitter;  // set if the output may contain reasoning
    std::vector<Call> calls;
    std::optional<CallReader> reader;  // set if the output may contain tool calls
    nlohmann::ordered_json logprobs;
    int64_t offset = 0;  // characters covered by logprobs so far
    bool is_begun = false, is_over = false, out_of_time = false;
    infer::EndReason reason = infer::EndReason::interrupted;
    std::string stop;  // the stop string that ended it
  };
  // Adds a delta; returns its reasoning, text and tool calls.
  std::vector<CallPiece> take(const Delta& delta);
  void rename(std::string id) { id_ = std::move(id); }
  const char* finish_reason(const Output& output) const;  // as in chat completions
  const Output& output_at(int64_t index) const { return outputs_.at(index); }
  int64_t outputs() const { return std::ssize(outputs_); }
  // The token and its log probability: {"token", "logprob", "bytes"}.
  nlohmann::ordered_json chance(text::TokenId id, double value) const;
  // Adds "lumen": {"schema": ..} to `out` if the grammar did not enforce all of the request's schemas.
  void put_schema_report(const Output& output, nlohmann::ordered_json* out) const;
  const ServedModel& model() const { return model_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  int64_t reasoning_tokens() const;  // counted by tokenizing the reasoning of all outputs
  int64_t created() const { return created_; }

 private:
  nlohmann::ordered_json head(const char* kind) const;
  nlohmann::ordered_json message_of(const Output& output) const;
  nlohmann::ordered_json delta_of(const CallPiece& piece, int64_t call, const Output& output) const;
  nlohmann::ordered_json usage() const;
  nlohmann::ordered_json no_logprobs() const;
  void put_logprobs(const Delta& delta, int64_t* offset, nlohmann::ordered_json* out) const;
  std::string token_text(text::TokenId id) const;
  std::string event(const nlohmann::ordered_json& value) const;

  const ServedModel& model_;
  bool is_chat_, include_usage_;
  int64_t top_, n_, created_;
  std::string id_;
  std::vector<std::string> warnings_;
  bool warns_ = false;  // the warnings were sent in a stream
  std::shared_ptr<SchemaReport> schemas_;
  std::vector<Output> outputs_;
  int64_t ended_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0, disk_tokens_ = 0, made_tokens_ = 0;
  bool tells_drafts_;
  int64_t drafted_tokens_ = 0, accepted_tokens_ = 0;
};

nlohmann::ordered_json embedding_reply(const EmbeddingRequest& request, const ServedModel& model,
                                       const std::vector<std::vector<float>>& vectors);
nlohmann::ordered_json tokenize_reply(const std::vector<text::TokenId>& tokens, const ServedModel& model);
// The tokenizer's information for programs that use /tokenize, in vLLM's format: names of special tokens, null for
// missing ones, and the chat template.
nlohmann::ordered_json tokenizer_reply(const ServedModel& model);
nlohmann::ordered_json detokenize_reply(const std::vector<text::TokenId>& tokens, const ServedModel& model);
// {"object": "list", "data": [..]}
nlohmann::ordered_json models_reply(const std::vector<const ServedModel*>& models, int64_t created);
nlohmann::ordered_json model_reply(const ServedModel& model, int64_t created);

}  // namespace lumen::model::serve
