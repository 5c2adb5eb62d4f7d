// Options for speculative decoding: a cheap draft proposes tokens, and the model verifies them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "model/infer/generate/generate.h"
#include "model/infer/generate/many_draft.h"
#include "model/infer/session/forecast.h"

namespace lumen::cli {

struct DraftFlags {
  std::string model;
  bool look_up = false;

  void add_flags(CLI::App& app, int64_t& most);  // `most`: tokens proposed per step
  void require_use(const CLI::App& app) const;   // Error where options limit a draft but none is selected
};

// The draft that the options select, and the state it needs while it is used.
class DraftChoice {
 public:
  // Error when the draft's vocabulary is not the model's.
  DraftChoice(const DraftFlags& flags, const model::LibraryRef& library, run::Engine& engine,
              const model::Model& model);
  // The memory that the draft needs, and the memory that the model needs to verify up to `most` tokens at once.
  model::MemoryForecast forecast(const model::LoadedModel& model, const model::SessionOptions& session,
                                 int64_t most) const;
  // A draft for one sequence; null when the options select none.
  std::unique_ptr<model::Draft> make(const model::Model& model, const model::SessionOptions& session) const;
  // A draft for many sequences, valid as long as this object.
  model::DraftOptions many(int64_t most) const;
  model::MemoryForecast forecast_many(const model::LoadedModel& model, const model::SessionOptions& session,
                                      const model::ManyLimits& limits) const;

 private:
  model::SessionOptions small_options(const model::SessionOptions& session, const model::Model& model) const;
  bool look_up_;
  std::optional<model::Model> small_;
  std::optional<model::LoadedModel> loaded_;
};

// " | draft: 60 of 75 tokens accepted"; empty without a draft.
std::string draft_text(int64_t drafted, int64_t accepted);

}  // namespace lumen::cli
