// Commands of image classifiers: trained, measured, quantized with ranges that are known before a layer runs, studied.
//
// May include: apps/classify, apps/draws, apps/image_fit, apps/image_training, apps/spread, base, base/file,
// base/structured, cli, cli/settings, model/file, model/report.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <span>
#include <string>

#include "apps/classify/classify.h"
#include "apps/classify/ranged.h"
#include "cli/command.h"
#include "cli/settings/settings.h"

namespace lumen::cli {

// Adds `lumen classify` to the program (apps/CMakeLists.txt), whose options are these rows of the table.
void add_classify(CLI::App& app, Command& command);
std::span<const Setting> classify_rows();
// Each adds a command to `lumen classify`.
void add_classify_train(CLI::App& app, Command& command);
void add_classify_eval(CLI::App& app, Command& command);
void add_classify_quantize(CLI::App& app, Command& command);
void add_classify_export(CLI::App& app, Command& command);
void add_classify_study(CLI::App& app, Command& command);

inline constexpr const char* kRangesFile = "ranges.json";  // beside the checkpoints of a run: a way, and a calibration
inline constexpr const char* kLogits = "logits";

// What `quantize` wrote beside a run's checkpoints. Error when there is nothing, or something else.
struct KeptRanges {
  classify::RangeWay way;
  std::vector<std::string> floats;
  classify::Calibration calibration;
};
KeptRanges read_ranges(const std::string& run);

// A trained classifier. Error when the family has no logits.
std::unique_ptr<apps::Network> load_classifier(run::Engine& engine, const model::arch::Library& library,
                                               const std::string& run);
// Images of the training part that a seed picks, as batches of `batch`: what ranges are calibrated on.
std::vector<apps::NetworkInputs> calibration_batches(const apps::Images& images, const apps::Network& network,
                                                     int64_t count, int64_t batch, uint64_t seed);

}  // namespace lumen::cli
