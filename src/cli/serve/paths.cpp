#include "cli/serve/paths.h"

#include <algorithm>

namespace lumen::cli {
namespace {

constexpr const char *kGet = "GET, HEAD", *kPost = "POST";

constexpr ServedPath kPaths[] = {
    {"/", kGet, Action::page, ErrorForm::openai, true},
    {"/health", kGet, Action::health, ErrorForm::openai, true},
    {"/v1/health", kGet, Action::health, ErrorForm::openai, true},
    {"/metrics", kGet, Action::metrics},
    {"/tokenizer_info", kGet, Action::tokenizer_info},
    {"/v1/models", kGet, Action::models},
    {"/models", kGet, Action::models},
    {"/v1/models/*", kGet, Action::one_model},
    {"/v1/chat/completions", kPost, Action::chat},
    {"/chat/completions", kPost, Action::chat},
    {"/v1/completions", kPost, Action::completion},
    {"/v1/responses", kPost, Action::responses},
    {"/responses", kPost, Action::responses},
    {"/v1/responses/*/cancel", kPost, Action::cancel_response},
    {"/v1/responses/*", "GET, HEAD, DELETE", Action::one_response},
    {"/v1/messages", kPost, Action::messages, ErrorForm::anthropic},
    {"/v1/messages/count_tokens", kPost, Action::count_tokens, ErrorForm::anthropic},
    {"/v1/embeddings", kPost, Action::embeddings},
    {"/embeddings", kPost, Action::embeddings},
    {"/v1/rerank", kPost, Action::rerank},
    {"/v2/rerank", kPost, Action::rerank},
    {"/rerank", kPost, Action::rerank},
    {"/v1/reranking", kPost, Action::rerank},
    {"/reranking", kPost, Action::rerank},
    {"/v1/score", kPost, Action::score},
    {"/score", kPost, Action::score},
    {"/tokenize", kPost, Action::tokenize},
    {"/detokenize", kPost, Action::detokenize},
    {"/completion", kPost, Action::native_completion},
    {"/completions", kPost, Action::native_completion},
    {"/infill", kPost, Action::infill},
    {"/apply-template", kPost, Action::apply_template},
    {"/props", kGet, Action::props},
    {"/slots", kGet, Action::slots},
    {"/api/version", kGet, Action::ollama_version, ErrorForm::ollama},
    {"/api/tags", kGet, Action::ollama_tags, ErrorForm::ollama},
    {"/api/ps", kGet, Action::ollama_ps, ErrorForm::ollama},
    {"/api/show", kPost, Action::ollama_show, ErrorForm::ollama},
    {"/api/chat", kPost, Action::ollama_chat, ErrorForm::ollama},
    {"/api/generate", kPost, Action::ollama_generate, ErrorForm::ollama},
    {"/api/embed", kPost, Action::ollama_embed, ErrorForm::ollama},
    {"/api/embeddings", kPost, Action::ollama_embeddings, ErrorForm::ollama},
};

// The part of `path` that stands for '*' in `form`; false if the path has another form.
bool matches(std::string_view form, std::string_view path, std::string* name) {
  const size_t star = form.find('*');
  if (star == std::string_view::npos) return form == path;
  const std::string_view head = form.substr(0, star), tail = form.substr(star + 1);
  if (path.size() <= head.size() + tail.size() || !path.starts_with(head) || !path.ends_with(tail)) return false;
  *name = path.substr(head.size(), path.size() - head.size() - tail.size());
  return true;
}

}  // namespace

bool ServedPath::takes(std::string_view method) const {
  std::string_view left = methods;
  while (!left.empty()) {
    const size_t end = std::min(left.find(", "), left.size());
    if (left.substr(0, end) == method) return true;
    left.remove_prefix(std::min(left.size(), end + 2));
  }
  return false;
}

FoundPath find_path(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  for (const ServedPath& one : kPaths)
    if (FoundPath found; matches(one.path, path, &found.name)) {
      found.served = &one;
      return found;
    }
  return {};
}

ErrorForm error_form(std::string_view path) {
  if (const FoundPath found = find_path(path); found.served) return found.served->errors;
  return path.starts_with("/api/")          ? ErrorForm::ollama
         : path.starts_with("/v1/messages") ? ErrorForm::anthropic
                                            : ErrorForm::openai;
}

}  // namespace lumen::cli
