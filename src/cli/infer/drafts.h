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
  DraftChoice(const DraftFlags& flags, const model::arch::LibraryRef& library, run::Engine& engine,
              const model::arch::Model& model);
  // The memory that the draft needs, and the memory that the model needs to verify up to `most` tokens at once.
  model::infer::MemoryForecast forecast(const model::infer::LoadedModel& model,
                                        const model::infer::SessionOptions& session, int64_t most) const;
  // A draft for one sequence; null when the options select none.
  std::unique_ptr<model::infer::Draft> make(const model::arch::Model& model,
                                            const model::infer::SessionOptions& session) const;
  // A draft for many sequences, valid as long as this object.
  model::infer::DraftOptions many(int64_t most) const;
  model::infer::MemoryForecast forecast_many(const model::infer::LoadedModel& model,
                                             const model::infer::SessionOptions& session,
                                             const model::infer::ManyLimits& limits) const;

 private:
  model::infer::SessionOptions small_options(const model::infer::SessionOptions& session,
                                             const model::arch::Model& model) const;
  bool look_up_;
  std::optional<model::arch::Model> small_;
  std::optional<model::infer::LoadedModel> loaded_;
};

// " | draft: 60 of 75 tokens accepted"; empty without a draft.
std::string draft_text(int64_t drafted, int64_t accepted);

}  // namespace lumen::cli
