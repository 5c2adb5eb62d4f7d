// Flags of commands that may let a cheap draft propose what the model then only checks.
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

  void add_flags(CLI::App& app, int64_t& most);  // `most`: tokens proposed at once
  void require_use(const CLI::App& app) const;   // Error where flags bound a draft that nobody asked for
};

// The draft chosen by flags, and what it needs as long as it is used.
class DraftChoice {
 public:
  // Error when the draft's vocabulary is not the model's.
  DraftChoice(const DraftFlags& flags, const model::LibraryRef& library, run::Engine& engine,
              const model::Model& model);
  // What the draft will take, and what the model takes to read up to `most` of its tokens at once.
  model::MemoryForecast forecast(const model::LoadedModel& model, const model::SessionOptions& session,
                                 int64_t most) const;
  // For one sequence; null when no flag asks for one.
  std::unique_ptr<model::Draft> make(const model::Model& model, const model::SessionOptions& session) const;
  // For many sequences, as long as this lives.
  model::DraftOptions many(int64_t most) const;
  model::MemoryForecast forecast_many(const model::LoadedModel& model, const model::SessionOptions& session,
                                      const model::ManyLimits& limits) const;

 private:
  model::SessionOptions small_options(const model::SessionOptions& session, const model::Model& model) const;
  bool look_up_;
  std::optional<model::Model> small_;
  std::optional<model::LoadedModel> loaded_;
};

// " | draft: 60 of 75 tokens accepted", or nothing.
std::string draft_text(int64_t drafted, int64_t accepted);

}  // namespace lumen::cli
