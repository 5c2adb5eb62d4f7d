// What `lumen quantize` measures of its result: the distance of its predictions from those of the model that it read,
// on text that calibrated nothing. A result that no longer predicts is reported as broken. Proved by
// tests/cli/convert/measured_result/measured_result_test.cpp.
//
// May include: base, cli, model/arch, model/arch/checkpoint, model/file, model/infer/measure, model/report/compression,
// run/device.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/layer_text.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/model.h"
#include "model/report/compression/compression_report.h"

namespace lumen::cli {

// Text that a model is measured on.
struct ResultText {
  std::vector<model::text::TokenId> tokens;
  std::string name;  // "the last 4 windows of wiki.txt"
};

// The end of a calibration text that is not used for calibration: what `read` left over, or a sixteenth of `text`,
// which is then removed from it. A text of fewer than eight windows stays whole.
ResultText held_out(const LayerTextFlags& read, std::vector<model::text::TokenId>& text);

struct ResultMeasure {
  std::string in;                // the model that was read
  model::arch::Destination out;  // what was written
  ResultText text = {};          // empty: the files of `texts`, or the end of the built-in text
  std::vector<std::string> texts = {};
  bool is_calibrated = false;  // by a strategy that learns from text
};

// Prints KL divergence, share of equal most likely tokens and perplexity, and adds them to the report. Where the models
// cannot be compared, a note says why. Error (interrupted) after Ctrl-C; the result stays.
void measure_result(const Shared& shared, const ResultMeasure& what, model::report::CompressionReport& report);

// Warns if these figures are those of a broken model, and names what to choose instead. `bits`: of the result, per
// weight.
void warn_if_broken(const model::report::MeasuredQuality& quality, double bits, bool is_calibrated,
                    const FormatLibrary& formats);

}  // namespace lumen::cli
