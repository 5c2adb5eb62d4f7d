// The own API of ggml's server, which programs use besides OpenAI's: completions with its names of fields, the middle
// of a file, templates without an answer, and descriptions of the server. docs/guide/serving.md names its document.
// Proved by tests/model/serve/forms_native_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/serve/forms/pace.h"
#include "model/serve/reply.h"

namespace lumen::model::serve {

// A request of /completion or /infill as a request of completions.
struct NativeAsk {
  nlohmann::ordered_json body;  // for read_completion
  bool with_tokens = false;     // the answer lists the ids
  bool with_chances = false;    // the answer lists the log probabilities
};
NativeAsk read_native_completion(const nlohmann::ordered_json& body, const ServedModel& model);
NativeAsk read_infill(const nlohmann::ordered_json& body, const ServedModel& model);

class NativeReply : public Reply {
 public:
  NativeReply(const GenerationRequest& request, const ServedModel& model, int64_t created, NativeAsk ask);
  void add(Delta delta) override;
  nlohmann::ordered_json whole() const override;
  std::string events(Delta delta) override;
  std::string last_events() override { return {}; }
  std::string failed_events(const Refusal& refusal) const override;

 private:
  struct Part {  // of an output
    std::vector<text::TokenId> tokens;
    nlohmann::ordered_json chances = nlohmann::ordered_json::array();
    int64_t made = 0, read = 0, shared = 0;
  };
  void note(const Delta& delta, Part* part) const;
  nlohmann::ordered_json ended(int64_t index) const;

  NativeAsk ask_;
  std::vector<int64_t> prompts_;  // tokens of each output's prompt
  std::vector<Part> parts_;
  int64_t most_ = 0;
  Pace pace_;
};

// A request of /tokenize without the members that only this API has. In it, 'content' gets no BOS and EOS unless
// 'add_special' is set.
nlohmann::ordered_json plain_tokenize(nlohmann::ordered_json body);
// {"tokens": [{"id", "piece"}, ..]}; a piece that is not UTF-8 is a list of bytes.
nlohmann::ordered_json native_tokens(const std::vector<text::TokenId>& tokens, const ServedModel& model);
// /props, /slots. `slots`: sequences generated at once; `running`: those that are.
nlohmann::ordered_json native_props(const ServedModel& model, int64_t slots, const std::string& version);
nlohmann::ordered_json native_slots(const ServedModel& model, int64_t slots, int64_t running);
// The prompt that the chat template makes of a request's messages: {"prompt": ..}.
nlohmann::ordered_json apply_template(const nlohmann::ordered_json& body, const ServedModel& model);

}  // namespace lumen::model::serve
