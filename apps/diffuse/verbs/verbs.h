// Commands of diffusion: images made up, a family trained on images, put into few bits, images drawn from it.
//
// May include: apps/diffuse, apps/image_training, apps/images, apps/spread, base, base/file, cli, cli/paths,
// cli/settings, model/file, model/report.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/diffuse/stored.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/settings/settings.h"

namespace lumen::cli {

// Adds `lumen diffuse` to the program (apps/CMakeLists.txt), whose options are these rows of the table.
void add_diffuse(CLI::App& app, Command& command);
std::span<const Setting> diffuse_rows();
// Each adds a command to `lumen diffuse`.
void add_diffuse_data(CLI::App& app, Command& command);
void add_diffuse_train(CLI::App& app, Command& command);
void add_diffuse_sample(CLI::App& app, Command& command);
void add_diffuse_quantize(CLI::App& app, Command& command);
void add_diffuse_study(CLI::App& app, Command& command);

inline constexpr uint64_t kCalibrationSeed = uint64_t{1} << 40;  // of noise that no image is drawn from

// How a quantization sees what products read.
struct CalibrationFlags {
  int64_t count = 16, rows = 1024, rank = 0;
  diffuse::Sampling how;
  void add(CLI::App& app);
  // By turns of all classes. `seed`: of noise, and of which rows are kept. `left` becomes what cannot be quantized.
  std::vector<diffuse::ProductReads> reads(apps::Network& network, uint64_t seed, Progress& progress,
                                           std::vector<graph::LeftWeight>& left) const;
};

// Lines for people: how many products are in codes and how many of those are convolutions, bits, and what products read
// that stays f32, each with the reason.
std::string in_codes_text(const apps::Network& network, std::span<const diffuse::ProductReads> reads,
                          const diffuse::QuantizedWeights& weights, std::span<const graph::LeftWeight> left);

}  // namespace lumen::cli
