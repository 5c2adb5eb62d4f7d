#include "cli/infer/drafts.h"

#include <algorithm>

#include "base/error.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"

namespace lumen::cli {
namespace {

void check_vocabulary(const model::arch::Model& model, const model::arch::Model& small, const std::string& file) {
  const auto other = [&](const std::string& what) {
    return Error(Exit::user, fmt::format("{}: {}", file, what),
                 "a draft must have the vocabulary of the model it writes for; --lookup needs no second model");
  };
  if (!small.tokenizer) throw other("the draft model has no tokenizer");
  const model::text::Tokenizer& a = *model.tokenizer;
  const model::text::Tokenizer& b = *small.tokenizer;
  // Models may be padded differently beyond the tokenizer's ids, because those ids are never sampled.
  if (a.size() != b.size()) throw other(fmt::format("the draft has {} tokens, the model {}", b.size(), a.size()));
  if (a.size() > std::min(model.integer("vocab"), small.integer("vocab")))
    throw other(fmt::format("the tokenizer has {} tokens, but the draft {} and the model {}", a.size(),
                            small.integer("vocab"), model.integer("vocab")));
  for (model::text::TokenId id = 0; id < a.size(); ++id)
    if (a.bytes(id) != b.bytes(id)) throw other(fmt::format("token {} of the draft is not the model's", id));
}

}  // namespace

void DraftFlags::add_flags(CLI::App& app, int64_t& most) {
  auto* draft = add_setting(app, "--model-draft", model);
  add_setting(app, "--lookup", look_up)->excludes(draft);
  add_setting(app, "--draft", most);
}

void DraftFlags::require_use(const CLI::App& app) const {
  if (!look_up && model.empty() && app.count("--draft") > 0)
    throw usage_error("--draft limits the tokens of a draft: it needs --lookup or --model-draft");
}

DraftChoice::DraftChoice(const DraftFlags& flags, const model::arch::LibraryRef& library, run::Engine& engine,
                         const model::arch::Model& model)
    : look_up_(flags.look_up) {
  if (flags.look_up || flags.model.empty()) return;
  small_ = model::arch::read_model(library, flags.model);
  check_vocabulary(model, *small_, flags.model);
  loaded_.emplace(engine, *small_);
}

std::unique_ptr<model::infer::Draft> DraftChoice::make(const model::arch::Model& model,
                                                       const model::infer::SessionOptions& session) const {
  if (look_up_) return std::make_unique<model::infer::LookUpDraft>();
  if (!loaded_) return nullptr;
  return std::make_unique<model::infer::ModelDraft>(
      *loaded_, small_options(session, model),
      model::infer::never_drawn(*small_->tokenizer, small_->integer("vocab"), /*ignore_end=*/false));
}

model::infer::DraftOptions DraftChoice::many(int64_t most) const {
  return {.look_up = look_up_, .model = loaded_ ? &*loaded_ : nullptr, .most = most};
}

model::infer::SessionOptions DraftChoice::small_options(const model::infer::SessionOptions& session,
                                                        const model::arch::Model& model) const {
  model::infer::SessionOptions options = session;
  if (options.context == 0) options.context = model.integer("context");
  options.context = std::min(options.context, small_->integer("context"));
  options.narrow = model::infer::Narrow::never;  // the sampler does not choose the draft's tokens
  return options;
}

model::infer::MemoryForecast DraftChoice::forecast(const model::infer::LoadedModel& model,
                                                   const model::infer::SessionOptions& session, int64_t most) const {
  model::infer::MemoryForecast out = model::infer::forecast(model, session, look_up_ || loaded_ ? most : 0);
  if (loaded_) out += model::infer::forecast(*loaded_, small_options(session, model.model()));
  return out;
}

model::infer::MemoryForecast DraftChoice::forecast_many(const model::infer::LoadedModel& model,
                                                        const model::infer::SessionOptions& session,
                                                        const model::infer::ManyLimits& limits) const {
  model::infer::MemoryForecast out = model::infer::forecast_many(model, session, limits);
  if (!loaded_) return out;
  const model::infer::SessionOptions own = model::infer::draft_session(many(limits.drafted), session);
  return out +=
         model::infer::forecast_many(*loaded_, own, model::infer::ManyModelDraft::own_limits(*loaded_, own, limits));
}

std::string draft_text(int64_t drafted, int64_t accepted) {
  return drafted == 0 ? "" : fmt::format(" | draft: {} of {} tokens accepted", accepted, drafted);
}

}  // namespace lumen::cli
