// Ollama's API: chats, completions and embeddings, streamed as lines of JSON, and descriptions of the served models.
// The forms are those of https://github.com/ollama/ollama/blob/main/docs/api.md. Proved by
// tests/model/serve/forms_ollama_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/serve/forms/pace.h"
#include "model/serve/reply.h"

namespace lumen::model::serve {

// A request of /api/chat or /api/generate as a request of chats or completions.
struct OllamaAsk {
  nlohmann::ordered_json body;  // for read_chat or read_completion
  bool is_chat = true;
  bool is_generate = false;  // of /api/generate: the answer has 'response' in place of 'message'
  bool is_load = false;      // it only loads the model: there is nothing to generate
  std::string model;         // the name in the request, which answers repeat
};
// Refusal for images and for members that have no meaning here.
OllamaAsk read_ollama_chat(const nlohmann::ordered_json& body);
// Without `raw` the prompt is a user message of the model's chat template.
OllamaAsk read_ollama_generate(const nlohmann::ordered_json& body, const ServedModel& model);
// The answer to a request that only loads the model.
nlohmann::ordered_json ollama_loaded(const OllamaAsk& ask, int64_t now);

class OllamaReply : public Reply {
 public:
  OllamaReply(const GenerationRequest& request, const ServedModel& model, int64_t created, OllamaAsk ask);
  const char* stream_type() const override { return "application/x-ndjson"; }
  void add(Delta delta) override;
  nlohmann::ordered_json whole() const override;
  std::string events(Delta delta) override;
  std::string last_events() override;
  std::string failed_events(const Refusal& refusal) const override;

 private:
  nlohmann::ordered_json piece(const std::string& text, const std::string& thinking = {}) const;
  void put_end(nlohmann::ordered_json* out) const;
  nlohmann::ordered_json call_at(size_t index) const;

  OllamaAsk ask_;
  Pace pace_;
  size_t calls_sent_ = 0;
};

// A request of /api/embed, or of /api/embeddings with one 'prompt'.
struct OllamaEmbedding {
  EmbeddingRequest request;
  std::string model;
  int64_t dimensions = 0;  // numbers of a vector; 0: all
  bool is_single = false;
  Pace pace;
};
OllamaEmbedding read_ollama_embedding(const nlohmann::ordered_json& body, const ServedModel& model, bool is_single);
nlohmann::ordered_json ollama_embedding_reply(const OllamaEmbedding& ask, std::vector<std::vector<float>> vectors);

// {"models": [..]}; with `is_running` as /api/ps, otherwise as /api/tags.
nlohmann::ordered_json ollama_models(const std::vector<const ServedModel*>& models, bool is_running);
// /api/show
nlohmann::ordered_json ollama_model(const ServedModel& model);
// {"error": ..}
std::string ollama_error(const Refusal& refusal);

}  // namespace lumen::model::serve
