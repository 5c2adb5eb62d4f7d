// Calibration: runs a model over text and sums up the inputs of its products: importance matrices. Independent of
// families and formats.
//
// May include: base, base/file, base/sealed, base/threads, graph/ir, graph/transform, model/arch, model/file,
// model/infer/session, number/library, run/engine, run/engine/feedback.
// Offers: cache_ranges.h, layer_run.h, sound.h, text_loss.h, there_and_back.h.
#pragma once

#include <functional>
#include <span>

#include "model/calibrate/importance.h"
#include "model/infer/session/session.h"

namespace lumen::model::calibrate {

// The family function for observing products' inputs on texts: `token_loss`, or for families that predict no tokens
// `hidden`. Error when it has neither.
const char* watched_function(const arch::Family& family);
inline constexpr const char* kTokenLoss = "token_loss";
// Input with the texts' lengths, all of which are whole windows.
inline constexpr const char* kLengths = "lengths";

struct CalibrateOptions {
  int64_t length = 512;  // tokens per window
  int64_t windows = 0;   // 0: all whole windows of the text
  int64_t batch = 1;     // windows computed at once
  bool output = false;   // also observes the output matrix
  bool exact = false;    // f32 activations throughout
  bool bos = false;      // the first token of every window is replaced by the tokenizer's BOS
};

struct CalibrationProgress {
  int64_t done = 0, windows = 0;
  double perplexity = 0;  // so far, over the second halves of the windows; 0 where the family predicts no tokens
};

// Sums of squares of the inputs of every product with a weight, over all tokens of the windows. Sums of a window are
// f32 in a fixed order, those over windows f64 in a fixed order: same text, same bits. Error when the text is shorter
// than a window.
Importance calibrate(const infer::LoadedModel& loaded, std::span<const text::TokenId> text,
                     const CalibrateOptions& options,
                     const std::function<void(const CalibrationProgress&)>& progress = {});

}  // namespace lumen::model::calibrate
