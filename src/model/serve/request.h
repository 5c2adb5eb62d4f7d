// What clients ask for, read from JSON: every field is known and within its bounds, or the request is refused with the
// reason; nothing that would change a result is dropped in silence. Proved by tests/model/serve/request_test.cpp.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/infer/generate/answer.h"
#include "model/serve/tools/tools.h"
#include "model/template/chat.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

// What a request is refused with: a status of HTTP, and the words of its error.
struct Refusal : std::runtime_error {
  // Bytes that are no UTF-8 become U+FFFD.
  Refusal(int status_, const std::string& message, const std::string& param_ = {}, std::string code_ = {});
  int status;
  std::string param, code;
  // {"error": {"message", "type", "param", "code"}}
  std::string body() const;
};

// What requests are read for.
struct ServedModel {
  ServedModel(std::string name_, Tokenizer tokenizer_, int64_t vocabulary_)
      : name(std::move(name_)), tokenizer(std::move(tokenizer_)), vocabulary(vocabulary_) {}

  std::string name;  // as requests call it
  int64_t set = 0;   // of the sets of adapters of the model that is run
  Tokenizer tokenizer;
  int64_t vocabulary;                   // ids are below it
  int64_t longest = 0;                  // tokens of a sequence at most; 0: it generates none
  int64_t longest_read = 0;             // tokens of an input at most that becomes a vector; 0: none does
  std::optional<ChatRenderer> chat;     // none: no chats
  std::vector<std::string> chat_stops;  // at which answers end
  std::optional<CallForm> calls;        // how it calls functions; none: it does not
  int64_t most_tokens = 0;              // that an output may have; 0: as many as fit
  int64_t most_outputs = 64;            // of one request, for all its prompts together
  bool has_draft = false;               // that proposes tokens for its sequences

  // The strings of the vocabulary's tokens, as grammars need them (with `controls` the names of control tokens, too);
  // made when first asked for.
  std::shared_ptr<const TokenStrings> token_strings(bool controls) const;

 private:
  mutable std::mutex mutex_;
  mutable std::array<std::shared_ptr<const TokenStrings>, 2> token_strings_;
};

// A request for chat answers or completions.
struct GenerationRequest {
  bool is_chat = false, stream = false, include_usage = false, echo = false;
  int64_t top = -1;  // likeliest tokens told beside each one; 0: its own logarithm alone; -1: nothing of it
  int64_t n = 1;     // outputs for each prompt, with seeds that follow each other
  int64_t set = 0;   // of the model's sets of adapters
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::string> echoed;  // prompts as text, repeated in front of each output
  SamplerOptions sampling;
  GenerateOptions generate;
  std::shared_ptr<const Constraint> constraint;
  std::shared_ptr<const CallPlan> calls;                 // functions that it may call
  std::shared_ptr<const std::vector<TokenId>> expected;  // what the client expects the output to be
};

// A request for embedding vectors.
struct EmbeddingRequest {
  std::vector<std::vector<TokenId>> inputs;
  int64_t set = 0;  // of the model's sets of adapters
  bool base64 = false;
};

// The text of a request as an object. Refusal where it is none, has bytes that are no UTF-8, the same key twice, or
// more than 64 levels.
nlohmann::ordered_json request_object(std::string_view body);
// The model it names, or empty.
std::string request_model(const nlohmann::ordered_json& body);

GenerationRequest read_chat(const nlohmann::ordered_json& body, const ServedModel& model);
GenerationRequest read_completion(const nlohmann::ordered_json& body, const ServedModel& model);
EmbeddingRequest read_embedding(const nlohmann::ordered_json& body, const ServedModel& model);
// {"prompt" or "content": TEXT, "add_special_tokens" or "add_special": true}
std::vector<TokenId> read_tokenize(const nlohmann::ordered_json& body, const ServedModel& model);
// {"tokens": [..]}
std::vector<TokenId> read_detokenize(const nlohmann::ordered_json& body, const ServedModel& model);

}  // namespace lumen::model
