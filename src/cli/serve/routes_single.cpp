// Paths whose answers are not generated: descriptions, vectors, scores, tokens, and stored responses.
#include <unistd.h>

#include <fstream>

#include "cli/serve/page.h"
#include "cli/serve/routes.h"
#include "cli/version.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

// The process's memory under the metric name of Prometheus' client libraries.
std::string memory_metric() {
  std::ifstream in("/proc/self/statm");
  int64_t whole = 0, resident = 0;
  if (!(in >> whole >> resident)) return {};
  return fmt::format(
      "# HELP process_resident_memory_bytes Memory of this process.\n# TYPE process_resident_memory_bytes gauge\n"
      "process_resident_memory_bytes {}\n",
      resident * ::sysconf(_SC_PAGESIZE));
}

model::serve::Refusal no_model() {
  return {404, "no such model", "model", "model_not_found"};
}

}  // namespace

std::vector<std::vector<float>> Routes::vectors_of(const HttpAsk& ask, const Entry& entry,
                                                   model::serve::EmbeddingRequest request, Line* line) {
  request.set = entry.model->set;
  for (const auto& input : request.inputs) line->prompt += std::ssize(input);
  const auto embedding = entry.scheduler->submit(std::move(request));
  for (;;) {
    if (auto vectors = embedding->take(kLook)) return std::move(*vectors);
    if (!ask.is_gone()) continue;
    embedding->cancel();
    throw model::serve::Refusal(kClientLeft, "the client has left");
  }
}

// Documents are scored in requests of as many as the model takes at once.
std::vector<double> Routes::scores_of(const HttpAsk& ask, const Entry& entry,
                                      const model::serve::RerankRequest& request, Line* line) {
  if (request.by != model::serve::ScoreBy::yes_no) {
    model::serve::EmbeddingRequest inputs;
    inputs.inputs = request.inputs;
    inputs.seconds = request.seconds;
    if (request.by == model::serve::ScoreBy::head)
      return model::serve::head_scores(request, vectors_of(ask, entry, std::move(inputs), line));
    return model::serve::cosine_scores(request, vectors_of(ask, entry, std::move(inputs), line));
  }
  line->prompt = request.prompt_tokens;
  std::vector<double> scores(request.prompts.size());
  const auto at_once = size_t(std::max<int64_t>(1, entry.model->most_outputs));
  for (size_t begin = 0; begin < scores.size(); begin += at_once) {
    const size_t end = std::min(scores.size(), begin + at_once);
    const auto answering = entry.scheduler->submit(model::serve::yes_no_request(request, *entry.model, begin, end));
    for (size_t ended = 0; ended < end - begin;) {
      if (const auto delta = answering->next(kLook)) {
        if (const auto score = model::serve::yes_no_score(request, *delta)) {
          scores[begin + size_t(delta->index)] = *score;
          ++line->made;
        } else if (delta->ended) {
          throw model::serve::Refusal(503, "a document was not scored within the time of a request");
        }
        ended += delta->ended ? 1 : 0;
      }
      if (!ask.is_gone()) continue;
      answering->cancel(model::serve::CancelReason::client_left);
      throw model::serve::Refusal(kClientLeft, "the client has left");
    }
  }
  return scores;
}

HttpReply Routes::post(const HttpAsk& ask, const FoundPath& path, Line* line) {
  const Action action = path.served->action;
  if (action == Action::cancel_response) {
    if (!responses_.response(path.name)) throw model::serve::Refusal(404, "no such response is stored (any more)");
    throw model::serve::Refusal(400, "only a response with 'background' can be cancelled; this one is complete");
  }
  ordered_json body = model::serve::request_object(ask.body);
  if (action == Action::ollama_show) {
    const ordered_json named = {{"model", body.value("model", body.value("name", ordered_json()))}};
    return json_reply(model::serve::ollama_model(*entry_of(named).model));
  }
  const Entry& entry = entry_of(body);
  const model::serve::ServedModel& model = *entry.model;
  line->model = model.name;
  switch (action) {
    case Action::count_tokens: {
      model::serve::FieldNotes notes{model.is_strict, {}};
      const model::serve::GenerationRequest request =
          model::serve::read_chat(model::serve::chat_of_messages(body, true, &notes), model, &notes, ask.is_gone);
      return json_reply({{"input_tokens", request.prompts.at(0).size()}});
    }
    case Action::embeddings: {
      const model::serve::EmbeddingRequest request = model::serve::read_embedding(body, model);
      return json_reply(model::serve::embedding_reply(request, model, vectors_of(ask, entry, request, line)));
    }
    case Action::ollama_embed:
    case Action::ollama_embeddings: {
      const auto request = model::serve::read_ollama_embedding(body, model, action == Action::ollama_embeddings);
      return json_reply(model::serve::ollama_embedding_reply(request, vectors_of(ask, entry, request.request, line)));
    }
    case Action::rerank: {
      const model::serve::RerankRequest request = model::serve::read_rerank(body, model);
      return json_reply(model::serve::rerank_reply(request, model, scores_of(ask, entry, request, line)));
    }
    case Action::score: {
      const model::serve::RerankRequest request = model::serve::read_score(body, model);
      return json_reply(model::serve::score_reply(request, model, scores_of(ask, entry, request, line), now_seconds()));
    }
    case Action::tokenize: {
      const bool with_pieces = body.value("with_pieces", ordered_json()) == true;
      const std::vector<model::text::TokenId> tokens =
          model::serve::read_tokenize(model::serve::plain_tokenize(body), model);
      return json_reply(with_pieces ? model::serve::native_tokens(tokens, model)
                                    : model::serve::tokenize_reply(tokens, model));
    }
    case Action::detokenize:
      return json_reply(model::serve::detokenize_reply(model::serve::read_detokenize(body, model), model));
    case Action::apply_template:
      return json_reply(model::serve::apply_template(body, model));
    default:
      break;
  }
  throw model::serve::Refusal(404, "no such path");
}

HttpReply Routes::one_response(const HttpAsk& ask, const std::string& id) {
  const bool is_erased = ask.method == "DELETE" && responses_.erase(id);
  const auto response = ask.method == "DELETE" ? std::nullopt : responses_.response(id);
  if (!is_erased && !response) throw model::serve::Refusal(404, "no such response is stored (any more)", "response_id");
  return json_reply(response ? *response : ordered_json{{"id", id}, {"object", "response"}, {"deleted", true}});
}

HttpReply Routes::get(const HttpAsk& ask, const FoundPath& path) {
  std::vector<const model::serve::ServedModel*> models;
  for (const Entry& entry : entries_) models.push_back(entry.model);
  switch (path.served->action) {
    case Action::page:
      return page_reply();
    case Action::health: {
      HttpReply reply = json_reply({{"status", is_draining_ ? "draining" : "ok"}});
      if (is_draining_) reply.status = 503;
      return reply;
    }
    case Action::metrics: {
      std::map<std::string, model::serve::ServeNumbers> by_model;
      for (const Entry& entry : entries_) by_model[entry.model->name] = entry.scheduler->numbers(entry.model->set);
      HttpReply reply;
      reply.type = "text/plain; version=0.0.4; charset=utf-8";
      reply.body = model::serve::metrics_text(by_model, counts_) + memory_metric();
      if (prefixes_) reply.body += model::serve::prefix_metrics(prefixes_->numbers());
      return reply;
    }
    case Action::tokenizer_info:
      return json_reply(model::serve::tokenizer_reply(*entry_of(ordered_json::object()).model));
    case Action::props:
      return json_reply(model::serve::native_props(*entry_of(ordered_json::object()).model, slots_, kVersion));
    case Action::slots: {
      const Entry& entry = entry_of(ordered_json::object());
      return json_reply(
          model::serve::native_slots(*entry.model, slots_, entry.scheduler->numbers(entry.model->set).running));
    }
    case Action::models:
      return json_reply(model::serve::models_reply(models, started_));
    case Action::one_model: {
      const Entry* entry = find_entry(path.name);
      if (!entry) throw no_model();
      return json_reply(model::serve::model_reply(*entry->model, started_));
    }
    case Action::one_response:
      return one_response(ask, path.name);
    case Action::ollama_version:
      return json_reply({{"version", kVersion}});
    case Action::ollama_tags:
    case Action::ollama_ps:
      return json_reply(model::serve::ollama_models(models, path.served->action == Action::ollama_ps));
    default:
      break;
  }
  throw no_model();
}

}  // namespace lumen::cli
