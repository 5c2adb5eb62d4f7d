#include "cli/convert/measured_result/measured_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/given_text.h"
#include "cli/measured_quality.h"
#include "cli/output.h"
#include "model/arch/checkpoint/read.h"
#include "model/file/own_input.h"
#include "model/infer/measure/compare_models.h"
#include "run/device/require.h"

namespace lumen::cli {
namespace {

// A broken model: it rarely predicts the token that it predicted before, or its distributions have little to do with
// those before. At a divergence of 1 nat perplexity is some 2.7 times as high.
constexpr double kLeastSameTop = 0.5, kMostDivergence = 1;

constexpr int64_t kWindow = 256, kWindows = 8;
constexpr double kMostSeconds = 20;   // no window begins after them
constexpr int64_t kLeastWindows = 8;  // of a calibration text from which some are held out
constexpr int64_t kHeldShare = 16;

// GGUF files in parts do not have the name that was asked for: any part opens the model.
std::filesystem::path written_file(const model::arch::Destination& out) {
  if (!out.is_gguf() || std::filesystem::exists(out.path)) return out.path;
  model::file::Paths parts = model::file::replaced_by_gguf(out.path, true);
  std::erase(parts, out.path);
  const auto newest =
      std::ranges::max_element(parts, {}, [](const auto& p) { return std::filesystem::last_write_time(p); });
  return newest == parts.end() ? out.path : *newest;
}

ResultText text_of(const ResultMeasure& what, const model::text::Tokenizer& tokenizer) {
  if (!what.text.tokens.empty()) return what.text;
  return {model::infer::perplexity_tokens(tokenizer, held_out_texts(what.texts), model::infer::BosPlace::front),
          what.texts.empty() ? "the built-in text" : fmt::format("{}", fmt::join(what.texts, ", "))};
}

// Why a model is not compared; empty if it is.
std::string obstacle(const model::arch::Model& before) {
  if (!before.tokenizer) return "the model has no tokenizer";
  if (!before.family->has_function("forward")) return "the model predicts no tokens";
  return {};
}

std::string obstacle(run::Engine& engine, const model::arch::Model& before, const model::arch::Model& after,
                     const model::infer::PerplexityOptions& options) {
  try {
    run::require_memory(engine.device(), "measuring",
                        {{"the model before", before.weight_bytes()},
                         {"the model after", after.weight_bytes()},
                         {"logits of a window", model::infer::comparing_bytes(before, 1, options)}});
  } catch (const Error& e) {
    if (e.code() != Exit::hardware) throw;
    return "memory does not suffice for both models at once; `lumen compare --one-by-one` measures them";
  }
  return {};
}

// The format of GGUF files with the fewest bits above `bits`; null if there is none.
FormatRef next_format(const FormatLibrary& formats, double bits) {
  constexpr double kLeastGain = 0.4;  // bits per weight
  FormatRef best;
  for (const FormatRef& f : formats.all())
    if (f->encodes() && f->gguf_type && f->bits_per_weight() >= bits + kLeastGain &&
        (!best || f->bits_per_weight() < best->bits_per_weight()))
      best = f;
  return best;
}

}  // namespace

ResultText held_out(const LayerTextFlags& read, std::vector<model::text::TokenId>& text) {
  const int64_t length = read.run.length, windows = std::ssize(text) / length;
  if (!read.spare.empty()) return {read.spare, fmt::format("{}, after the windows used for calibration", read.names())};
  if (windows < kLeastWindows) return {};
  const int64_t kept = std::max<int64_t>(1, windows / kHeldShare);
  ResultText out{{text.begin() + (windows - kept) * length, text.begin() + windows * length},
                 fmt::format("the last {} of {} windows of {}", kept, windows, read.names())};
  text.resize((windows - kept) * length);
  return out;
}

void measure_result(const Shared& shared, const ResultMeasure& what, model::report::CompressionReport& report) {
  const Stopwatch watch;
  run::Engine engine = shared.engine();
  const model::arch::LibraryRef library = shared.library();
  const std::filesystem::path written = written_file(what.out);
  model::infer::PerplexityOptions options;
  options.windows = kWindows;
  options.full = true;
  {  // a model that cannot be measured is not read into memory: it may be larger
    const model::arch::StreamedModel before = model::arch::stream_model(library, what.in);
    std::string why = obstacle(before.model);
    if (why.empty()) {
      options.length = std::min<int64_t>(kWindow, before.model.integer("context"));
      why = obstacle(engine, before.model, model::arch::stream_model(library, written).model, options);
    }
    if (!why.empty()) return note(fmt::format("not measured: {}", why));
  }
  const model::arch::Model before = model::arch::read_model(library, what.in);
  const model::arch::Model after = model::arch::read_model(library, written);
  options.bos = before.tokenizer->adds_bos();
  ResultText text;
  try {
    text = text_of(what, *before.tokenizer);
  } catch (const Error& e) {  // a vocabulary without the characters of the text
    if (e.code() != Exit::user) throw;
    return note(fmt::format("not measured: {}", e.what()));
  }
  if (std::ssize(text.tokens) < options.length)
    return note(fmt::format("not measured: {} has {} tokens, fewer than a window of {}", text.name, text.tokens.size(),
                            options.length));
  const model::infer::LoadedModel base(engine, before), other(engine, after);
  const model::infer::LoadedModel* const others[] = {&other};
  Progress progress;
  catch_interrupts();
  model::infer::ComparedModels compared;
  try {
    compared = model::infer::compare_models(base, others, text.tokens, options, [&](int64_t done, int64_t all) {
      if (interrupted().load()) throw Error(Exit::interrupted, "stopped", "the result is written; it was not measured");
      progress.update(fmt::format("measure window {}/{}", done, all));
      return watch.seconds() < kMostSeconds;
    });
  } catch (const Error& e) {
    if (e.code() != Exit::numeric) throw;
    return warn(fmt::format("the result is written, but it is broken: {}", e.what()));
  }
  const model::infer::Divergence& d = compared.others[0].divergence;
  const model::report::MeasuredQuality q = quality_of(d);
  progress.finish(fmt::format("measured {} tokens of {}", d.tokens, text.name));
  put(
      fmt::format("KL divergence {:.6f} +/- {:.6f} nats a token, same likeliest token {:.1f} %, perplexity {:.2f} "
                  "(before: {:.2f}), over {} tokens\n",
                  d.mean, d.error, 100 * d.same_top, *q.ppl, *base_quality_of(d).ppl, d.tokens));
  if (report.text.empty()) report.text = fmt::format("measured on {}", text.name);
  report.base.quality = base_quality_of(d);
  if (report.result) report.result->quality = q;
  report.stages.push_back({"measuring", watch.seconds()});
  const double weights = std::max<int64_t>(1, before.weight_count());
  warn_if_broken(q, 8.0 * after.weight_bytes() / weights, what.is_calibrated, library->formats());
}

void warn_if_broken(const model::report::MeasuredQuality& quality, double bits, bool is_calibrated,
                    const FormatLibrary& formats) {
  const bool is_far = !(quality.kl.value_or(0) <= kMostDivergence);
  if (!is_far && quality.same_top.value_or(1) >= kLeastSameTop) return;
  const FormatRef next = next_format(formats, bits);
  std::string advice = is_calibrated ? "" : "add --strategy gptq and a calibration text (-f), or ";
  advice +=
      next ? fmt::format("choose a format with more bits, such as {} ({:.2f})", next->name, next->bits_per_weight())
           : "keep the weights as they are";
  warn(fmt::format("the quantized model is broken: {}. What to do: {}",
                   is_far ? fmt::format("its predictions are {:.2f} nats from those before", *quality.kl)
                          : fmt::format("its most likely token is the same as before in {:.0f} % of the places only",
                                        100 * *quality.same_top),
                   advice));
}

}  // namespace lumen::cli
