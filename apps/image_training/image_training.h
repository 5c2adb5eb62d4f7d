// What commands that train a network on images have in common: their flags, a run that is begun or gone on with, and
// the loop over its steps.
//
// May include: apps/images, apps/network, base, cli, cli/paths, cli/settings, model/file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/images/images.h"
#include "apps/network/network.h"
#include "cli/command.h"
#include "cli/settings/settings.h"

namespace lumen::cli {

struct ImageTrainingFlags {
  std::string data, out;
  std::vector<std::string> config;
  apps::NetworkSettings settings;
  double rate = 0;
  int64_t steps = 2000, batch = 64, warmup = 1, save_every = 1000;
  bool resume = false;
  void add(CLI::App& app);
};

// Rows of an application's options: those of the flags above for its command ("x train"), and its own. `families`: the
// help of --family.
std::vector<Setting> with_image_training(const char* command, const char* families, std::span<const Setting> own);

// The newest checkpoint with --resume; else fresh weights, with config values of the images under those of --config.
// Error (exit 2) where the folder holds a run, or no family is named; `document` says which there are.
std::unique_ptr<apps::Network> begun_on_images(run::Engine& engine, const model::arch::Library& library,
                                               const ImageTrainingFlags& flags, const graph::Config& of_images,
                                               const std::string& document);

// Steps until flags.steps, a line every few seconds, checkpoints. False when it was interrupted, and saved.
bool train_on_images(apps::Network& network, const ImageTrainingFlags& flags,
                     const std::function<apps::NetworkInputs(int64_t step)>& batch,
                     const std::function<double(int64_t step)>& rate);

}  // namespace lumen::cli
