// The table of the server's paths: what each does, with which method, and in which API's form its errors are. Proved by
// tests/cli/serve/paths_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen::cli {

enum class Action {
  page,
  health,
  metrics,
  tokenizer_info,
  models,
  one_model,
  props,
  slots,
  chat,
  completion,
  responses,
  one_response,
  cancel_response,
  messages,
  count_tokens,
  embeddings,
  tokenize,
  detokenize,
  native_completion,
  infill,
  apply_template,
  rerank,
  score,
  ollama_version,
  ollama_tags,
  ollama_ps,
  ollama_show,
  ollama_chat,
  ollama_generate,
  ollama_embed,
  ollama_embeddings
};

enum class ErrorForm { openai, anthropic, ollama };

struct ServedPath {
  const char* path;     // one that ends with "/*" has a name at its end
  const char* methods;  // as in the header Allow: "GET, HEAD"
  Action action;
  ErrorForm errors = ErrorForm::openai;
  bool is_open = false;  // needs no API key

  bool takes(std::string_view method) const;
};

// A path of the table, and the name at its end.
struct FoundPath {
  const ServedPath* served = nullptr;  // null: no such path
  std::string name;
};
// Slashes at the end of a path are ignored.
FoundPath find_path(std::string_view path);
// The form of errors for any path, those outside of the table included.
ErrorForm error_form(std::string_view path);

}  // namespace lumen::cli
