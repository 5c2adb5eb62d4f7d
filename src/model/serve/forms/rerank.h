// Scores of documents for a query, in the forms of Jina's API and those like it (/v1/rerank), of Text Embeddings
// Inference, and of vLLM's /v1/score. Proved by tests/model/serve/forms_rerank_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/serve/reply.h"

namespace lumen::model::serve {

// How a model scores a query with a document.
enum class ScoreBy {
  head,    // it reads both as a pair, and a head scores them
  yes_no,  // it answers whether the document fits: the probability of "yes" among "yes" and "no"
  cosine   // the cosine between the vectors of both
};

struct RerankRequest {
  ScoreBy by = ScoreBy::yes_no;
  std::vector<std::string> documents;               // as they are repeated in the answer
  std::vector<std::vector<text::TokenId>> prompts;  // yes_no: one for each document
  std::vector<std::vector<text::TokenId>> inputs;   // cosine: the queries, then the documents; head: the pairs
  std::vector<int64_t> seconds;                     // head: where the document begins
  std::vector<size_t> query_of;                     // cosine: the input that each document is compared with
  text::TokenId yes = 0, no = 0;
  int64_t most = 0;  // results in the answer
  bool with_documents = false;
  bool is_raw = false;        // scores of a head without the sigmoid
  bool is_plain = false;      // TEI's form: [{"index", "score"}, ..]
  int64_t prompt_tokens = 0;  // of all prompts or inputs
};
// Refusal if the model can neither answer yes or no nor compute vectors.
RerankRequest read_rerank(const nlohmann::ordered_json& body, const ServedModel& model);
// 'text_1' is compared with 'text_2'; each is a string or a list.
RerankRequest read_score(const nlohmann::ordered_json& body, const ServedModel& model);

// The generation request for the documents from `begin` to `end`, and the score in a delta of its answer; nullopt if
// the delta has none.
GenerationRequest yes_no_request(const RerankRequest& request, const ServedModel& model, size_t begin, size_t end);
std::optional<double> yes_no_score(const RerankRequest& request, const Delta& delta);
// `vectors`: the scores of the pairs.
std::vector<double> head_scores(const RerankRequest& request, const std::vector<std::vector<float>>& vectors);
std::vector<double> cosine_scores(const RerankRequest& request, const std::vector<std::vector<float>>& vectors);

// `scores`: by document.
nlohmann::ordered_json rerank_reply(const RerankRequest& request, const ServedModel& model,
                                    const std::vector<double>& scores);
nlohmann::ordered_json score_reply(const RerankRequest& request, const ServedModel& model,
                                   const std::vector<double>& scores, int64_t created);

}  // namespace lumen::model::serve
