// Parses requests from JSON. A value out of its bounds is refused with the reason. A field without an effect is
// ignored, which the reply's `warnings` and one line of the log report; a strict server refuses it. Proved by
// tests/model/serve/request_test.cpp.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/infer/generate/constraint_cache.h"
#include "model/infer/tower/tower.h"
#include "model/serve/conversation/conversation.h"
#include "model/serve/pictures/pictures.h"
#include "model/serve/schema_report.h"
#include "model/serve/tools/tools.h"
#include "model/templates/chat.h"
#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::serve {

// The rejection of a request: an HTTP status and the members of the error object.
struct Refusal : std::runtime_error {
  // Invalid UTF-8 is replaced by U+FFFD.
  Refusal(int status_, const std::string& message, const std::string& param_ = {}, std::string code_ = {});
  int status;
  std::string param, code;
  // {"error": {"message", "type", "param", "code"}}
  std::string body() const;
};

// Facts about a served model that other APIs report.
struct ModelFacts {
  std::string family, file;                         // the name of the family; the file or folder, without its path
  std::string format;                               // the name of the number format of most weights
  std::string digest;                               // 64 hexadecimal digits that identify the file
  int64_t parameters = 0, bytes = 0, modified = 0;  // weights; their bytes; seconds since 1970
};

// What a request contains that has no effect.
struct FieldNotes {
  bool is_strict = false;             // such a request is refused
  std::vector<std::string> warnings;  // for the reply; each once, and a limited number of them
  // Also logs the warning, once in the life of the process.
  void add(const std::string& warning);
};

// What is learned from a chat template, besides the form of its calls.
struct ChatTraits {
  RenderedRoles roles;
  ReasoningForm reasoning;
};

// How a model's requests bring pictures. All of it outlives the model's requests.
struct ServedPictures {
  const infer::Tower* tower;
  const PictureSource* source;
};

// A picture of a request. The thread that runs the model has its rows made, and puts them into the prompt; before that
// the prompt has only their places.
struct AskedPicture {
  std::shared_ptr<const infer::PreparedPicture> prepared;
  std::vector<size_t> places = {};  // of its rows in the prompt
  infer::PictureRef picture = nullptr;
};

// The model that requests are parsed for.
struct ServedModel {
  ServedModel(std::string name_, text::Tokenizer tokenizer_, int64_t vocabulary_)
      : name(std::move(name_)), tokenizer(std::move(tokenizer_)), vocabulary(vocabulary_) {}

  std::string name;                  // the name in requests and answers
  std::vector<std::string> aliases;  // further names in requests
  ModelFacts facts;
  int64_t set = 0;  // adapter set of the underlying model
  text::Tokenizer tokenizer;
  int64_t vocabulary;                           // upper bound of ids
  int64_t longest = 0;                          // most tokens of a sequence; 0: it cannot generate
  int64_t longest_read = 0;                     // most tokens of an input to embed; 0: it has no embeddings
  std::optional<templates::ChatRenderer> chat;  // nullopt: no chats
  std::vector<std::string> chat_stops;          // the template's stop strings
  std::optional<CallForm> calls;                // its format of tool calls; nullopt: no tool calls
  int64_t most_tokens = 0;                      // most tokens of an output; 0: limited by the context only
  int64_t most_outputs = 64;                    // of one request, over all its prompts
  bool has_draft = false;                       // it has a draft for speculative decoding
  bool scores_pairs = false;                    // it has a head that scores a query with a document
  bool is_strict = false;                       // requests with fields that have no effect are refused
  std::optional<ServedPictures> pictures;       // nullopt: it reads none

  // The strings of the vocabulary's tokens, for grammars (with `controls` also the names of control tokens); created on
  // first use.
  std::shared_ptr<const infer::TokenStrings> token_strings(bool controls) const;
  // A grammar, shared with other requests that have it. Error if it is not valid.
  std::shared_ptr<const infer::Constraint> constraint(const std::string& grammar, bool controls) const {
    return constraints_.get(tokenizer, grammar, token_strings(controls));
  }
  // The tokens that contain one of the strings; kept for the next request, because the whole vocabulary is searched.
  std::shared_ptr<const std::vector<text::TokenId>> tokens_with(const std::vector<std::string>& strings) const;
  // The traits of `chat`, which must be set; learned on first use.
  std::shared_ptr<const ChatTraits> traits() const;

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const ChatTraits> traits_;
  mutable std::array<std::shared_ptr<const infer::TokenStrings>, 2> token_strings_;
  mutable infer::ConstraintCache constraints_;
  mutable std::pair<std::vector<std::string>, std::shared_ptr<const std::vector<text::TokenId>>> tokens_with_;
};

// A request for chat answers or completions.
struct GenerationRequest {
  bool is_chat = false, stream = false, include_usage = false, echo = false;
  int64_t top = -1;  // number of most likely tokens in logprobs; 0: only the token's own; -1: no logprobs
  int64_t n = 1;     // outputs per prompt, with consecutive seeds
  int64_t set = 0;   // adapter set of the model
  std::vector<std::vector<text::TokenId>> prompts;
  std::vector<AskedPicture> pictures;  // those of the prompt
  std::vector<std::string> echoed;     // prompts as text, repeated at the start of each output
  std::vector<text::TokenId>
      watched;  // ids whose log probabilities are reported with each drawn token (TokenChance::top)
  infer::SamplerOptions sampling;
  infer::GenerateOptions generate;
  std::shared_ptr<const infer::Constraint> constraint;
  std::shared_ptr<const CallPlan> calls;                       // functions that may be called
  std::shared_ptr<const std::vector<text::TokenId>> expected;  // the output predicted by the client
  std::optional<ReasoningReader> reasoning;  // splits reasoning from outputs; nullopt: they are all text
  std::vector<std::string> warnings;         // parts of the request without effect, for the reply
  std::shared_ptr<SchemaReport> schemas;     // what the constraint does not enforce; null: no schemas
};

// A request for embedding vectors.
struct EmbeddingRequest {
  std::vector<std::vector<text::TokenId>> inputs;
  std::vector<int64_t> seconds = {};  // inputs are pairs to score: where their second parts begin; empty: no pairs
  int64_t set = 0;                    // adapter set of the model
  bool base64 = false;
  std::vector<std::string> warnings = {};  // parts of the request without effect, for the reply
};

// Parses a request's body as a JSON object. Refusal if it is not an object, or has invalid UTF-8, a duplicate key, or
// more than 64 levels.
nlohmann::ordered_json request_object(std::string_view body);
// The model named by the request, or empty.
std::string request_model(const nlohmann::ordered_json& body);

// `notes`: what another API's form of the request contained; null: the body came as it is. `is_stopped` is polled while
// schemas are compiled: true when the client has left.
GenerationRequest read_chat(const nlohmann::ordered_json& body, const ServedModel& model, FieldNotes* notes = nullptr,
                            const std::function<bool()>& is_stopped = {});
GenerationRequest read_completion(const nlohmann::ordered_json& body, const ServedModel& model,
                                  const std::function<bool()>& is_stopped = {});
EmbeddingRequest read_embedding(const nlohmann::ordered_json& body, const ServedModel& model);
// {"prompt" or "content": TEXT, "add_special_tokens" or "add_special": true}
std::vector<text::TokenId> read_tokenize(const nlohmann::ordered_json& body, const ServedModel& model);
// {"tokens": [..]}
std::vector<text::TokenId> read_detokenize(const nlohmann::ordered_json& body, const ServedModel& model);

}  // namespace lumen::model::serve
