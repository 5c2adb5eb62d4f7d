#include "model/serve/forms/rerank.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/infer/measure/pooling.h"
#include "model/serve/fields.h"
#include "model/serve/forms/infill.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostDocuments = 2048;
// The wording that yes/no rerankers were trained with, from the model card of the best known family of them.
constexpr const char* kJudge =
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
    "answer can only be \"yes\" or \"no\".";
constexpr const char* kInstruct = "Given a web search query, retrieve relevant passages that answer the query";

// The token of a word that is one token.
std::optional<text::TokenId> word_token(const ServedModel& model, const char* word) {
  try {
    const std::vector<text::TokenId> ids = model.tokenizer.encode(word);
    if (ids.size() == 1) return ids[0];
  } catch (const Error&) {
    // A character that is not in the vocabulary: the model has no such word.
  }
  return std::nullopt;
}

std::string document_text(const ordered_json& document, const char* name) {
  if (document.is_string()) return document;
  if (document.is_object() && document.value("text", ordered_json()).is_string()) return document["text"];
  throw wrong_value(name, key_in_quotes(name) + " must be strings or {'text': STRING}");
}

std::vector<std::string> strings_in(const ordered_json* given, const char* name) {
  if (!given) throw wrong_value(name, key_in_quotes(name) + " is missing");
  if (given->is_string()) return {given->get<std::string>()};
  if (!given->is_array() || given->empty() || given->size() > kMostDocuments)
    throw wrong_value(name, fmt::format("{} must be a list of 1 to {} strings", key_in_quotes(name), kMostDocuments));
  std::vector<std::string> out;
  for (const ordered_json& one : *given) out.push_back(document_text(one, name));
  return out;
}

void check_length(const std::vector<text::TokenId>& tokens, int64_t most, const char* name) {
  if (std::ssize(tokens) > most)
    throw Refusal(400,
                  fmt::format("a query with its document has {} tokens, but the context holds {}", tokens.size(), most),
                  name, "context_length_exceeded");
}

// `queries`: one for all documents, or one for each.
void add_pairs(const ServedModel& model, const std::vector<std::string>& queries, const std::string& instruct,
               RerankRequest* out) {
  if (model.scores_pairs) {
    out->by = ScoreBy::head;
    for (size_t i = 0; i < out->documents.size(); ++i) {
      try {
        text::Tokenizer::Pair pair =
            model.tokenizer.encode_pair(queries[queries.size() == 1 ? 0 : i], out->documents[i]);
        out->inputs.push_back(std::move(pair.ids));
        out->seconds.push_back(pair.second);
      } catch (const Error& error) {
        throw wrong_value("documents", error.what());
      }
      check_length(out->inputs.back(), model.longest_read, "documents");
      out->prompt_tokens += std::ssize(out->inputs.back());
    }
    return;
  }
  if (out->is_raw)
    throw Refusal(400, "'raw_scores' are those of a head that scores pairs, which this model has not", "raw_scores");
  const auto yes = word_token(model, "yes"), no = word_token(model, "no");
  if (model.longest > 0 && model.chat && yes && no) {
    out->yes = *yes;
    out->no = *no;
    for (size_t i = 0; i < out->documents.size(); ++i) {
      const std::string& query = queries[queries.size() == 1 ? 0 : i];
      const ordered_json messages = {{{"role", "system"}, {"content", kJudge}},
                                     {{"role", "user"},
                                      {"content", fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}", instruct,
                                                              query, out->documents[i])}}};
      try {
        out->prompts.push_back(model.chat->prompt(messages, {{"enable_thinking", false}}));
      } catch (const Error& error) {
        throw wrong_value("documents", error.what());
      }
      check_length(out->prompts.back(), model.longest, "documents");
      out->prompt_tokens += std::ssize(out->prompts.back());
    }
    return;
  }
  if (model.longest_read == 0)
    throw Refusal(400, "this model has no vectors, and no tokens \"yes\" and \"no\" of a chat, to score documents with",
                  "model", "unsupported_model");
  out->by = ScoreBy::cosine;
  const auto add = [&](const std::string& text, const char* name) {
    out->inputs.push_back(tokens_of(model, text, name, true));
    if (out->inputs.back().empty()) throw wrong_value(name, "an empty text has no vector");
    check_length(out->inputs.back(), model.longest_read, name);
    out->prompt_tokens += std::ssize(out->inputs.back());
  };
  for (const std::string& query : queries) add(query, "query");
  for (size_t i = 0; i < out->documents.size(); ++i) {
    add(out->documents[i], "documents");
    out->query_of.push_back(queries.size() == 1 ? 0 : i);
  }
}

std::string string_of(Fields& fields, const char* name, const char* otherwise) {
  const ordered_json* value = fields.find(name);
  if (!value && otherwise) return otherwise;
  if (!value || !value->is_string()) throw wrong_value(name, key_in_quotes(name) + " must be a string");
  return *value;
}

}  // namespace

RerankRequest read_rerank(const ordered_json& body, const ServedModel& model) {
  RerankRequest out;
  Fields fields(body);
  const std::string query = string_of(fields, "query", nullptr);
  const ordered_json *documents = fields.find("documents"), *plain = fields.find("texts");
  out.is_plain = !documents && plain;
  out.documents = strings_in(out.is_plain ? plain : documents, out.is_plain ? "texts" : "documents");
  const auto count = std::ssize(out.documents);
  out.most = std::min<int64_t>(fields.whole("top_n", count, 1, INT32_MAX), count);
  out.with_documents = fields.boolean(out.is_plain ? "return_text" : "return_documents", false);
  const std::string instruct = string_of(fields, "instruction", kInstruct);
  out.is_raw = fields.boolean("raw_scores", false);
  fields.ignore({"model", "user", "truncate", "truncation_direction", "max_tokens_per_doc", "max_chunks_per_doc"});
  fields.refuse_others();
  add_pairs(model, {query}, instruct, &out);
  return out;
}

RerankRequest read_score(const ordered_json& body, const ServedModel& model) {
  RerankRequest out;
  Fields fields(body);
  const std::vector<std::string> queries = strings_in(fields.find("text_1"), "text_1");
  out.documents = strings_in(fields.find("text_2"), "text_2");
  if (queries.size() != 1 && queries.size() != out.documents.size())
    throw wrong_value("text_1", "'text_1' must be one text, or as many as 'text_2' has");
  const std::string instruct = string_of(fields, "instruction", kInstruct);
  fields.ignore({"model", "user"});
  fields.refuse_others();
  out.most = std::ssize(out.documents);
  add_pairs(model, queries, instruct, &out);
  return out;
}

GenerationRequest yes_no_request(const RerankRequest& request, const ServedModel& model, size_t begin, size_t end) {
  GenerationRequest out;
  out.set = model.set;
  out.prompts.assign(request.prompts.begin() + int64_t(begin), request.prompts.begin() + int64_t(end));
  out.echoed.resize(out.prompts.size());
  out.sampling.temperature = 0;
  out.generate.predict = 1;
  out.watched = {request.yes, request.no};
  return out;
}

std::optional<double> yes_no_score(const RerankRequest& request, const Delta& delta) {
  if (delta.tokens.empty() || !delta.tokens[0] || delta.tokens[0]->top.size() != 2) return std::nullopt;
  double yes = 0, no = 0;
  for (const auto& [id, chance] : delta.tokens[0]->top) (id == request.yes ? yes : no) = chance;
  return 1 / (1 + std::exp(no - yes));
}

std::vector<double> head_scores(const RerankRequest& request, const std::vector<std::vector<float>>& vectors) {
  std::vector<double> out;
  for (const std::vector<float>& one : vectors)
    out.push_back(request.is_raw ? double{one.at(0)} : 1 / (1 + std::exp(-double{one.at(0)})));
  return out;
}

std::vector<double> cosine_scores(const RerankRequest& request, const std::vector<std::vector<float>>& vectors) {
  const size_t queries = request.inputs.size() - request.documents.size();
  std::vector<double> out;
  for (size_t i = 0; i < request.documents.size(); ++i)
    out.push_back(infer::cosine(vectors.at(request.query_of[i]), vectors.at(queries + i)));
  return out;
}

ordered_json rerank_reply(const RerankRequest& request, const ServedModel& model, const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  ordered_json results = ordered_json::array();
  for (int64_t i = 0; i < request.most; ++i) {
    ordered_json one;
    one["index"] = order[i];
    one[request.is_plain ? "score" : "relevance_score"] = scores[order[i]];
    if (request.with_documents) {
      if (request.is_plain)
        one["text"] = request.documents[order[i]];
      else
        one["document"] = {{"text", request.documents[order[i]]}};
    }
    results.push_back(std::move(one));
  }
  if (request.is_plain) return results;
  ordered_json out;
  out["id"] = reply_id("rerank-");
  out["object"] = "list";
  out["model"] = model.name;
  out["results"] = std::move(results);
  out["usage"] = {{"prompt_tokens", request.prompt_tokens}, {"total_tokens", request.prompt_tokens}};
  return out;
}

ordered_json score_reply(const RerankRequest& request, const ServedModel& model, const std::vector<double>& scores,
                         int64_t created) {
  ordered_json out;
  out["id"] = reply_id("score-");
  out["object"] = "list";
  out["created"] = created;
  out["model"] = model.name;
  out["data"] = ordered_json::array();
  for (size_t i = 0; i < scores.size(); ++i)
    out["data"].push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
  out["usage"] = {{"prompt_tokens", request.prompt_tokens}, {"total_tokens", request.prompt_tokens}};
  return out;
}

}  // namespace lumen::model::serve
