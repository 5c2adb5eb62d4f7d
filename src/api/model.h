// A model opened by another program: its file, its weights on the device, and its compiled programs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/array.h"
#include "api/options.h"
#include "include/lumen.h"
#include "model/arch/model.h"
#include "model/infer/measure/embed.h"
#include "model/infer/session/session.h"

struct lumen_model {
  lumen_model(std::string path, lumen::api::Options& options);

  // The session is kept for later calls with the same options.
  lumen::model::infer::Session& session(const lumen::model::infer::SessionOptions& options);
  lumen::model::infer::Embedder& embedder(const lumen::model::infer::EmbedOptions& options);
  // After an error the content of the caches is undefined.
  void forget() { session_.reset(); }
  // Error where the model has none.
  const lumen::model::text::Tokenizer& tokenizer() const;

  const std::string path;

 private:
  lumen::model::arch::LibraryRef library_;
  lumen::model::arch::Model model_;

 public:
  const std::shared_ptr<lumen::api::Place> place;
  const lumen::model::infer::LoadedModel loaded;  // made from model_, on place

 private:
  std::optional<lumen::model::infer::Session> session_;
  lumen::model::infer::SessionOptions session_options_;
  std::optional<lumen::model::infer::Embedder> embedder_;
  bool is_embedder_exact_ = false;
};

namespace lumen::api {

// Runs `work` on a model, one thread at a time.
int with_model(lumen_model* model, const std::function<void(lumen_model&)>& work) noexcept;

}  // namespace lumen::api
