#include "apps/image_training/image_training.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

constexpr double kSecondsOfALine = 5;

}  // namespace

std::vector<Setting> with_image_training(const char* command, const char* families, std::span<const Setting> own) {
  std::vector<Setting> out = {
      Setting{"data", command, "Folder of IDX files: train-images-idx3-ubyte, train-labels-idx1-ubyte (.gz)"}
          .reading(Reads::folder, "FOLDER")
          .required(),
      Setting{"-o,--out", command, "Folder of the run"}.writing(Writes::folder, "RUN").required(),
      Setting{"--family", command, families}.takes("NAME"),
      Setting{"--shape", command, "Size that the family names"}.takes("NAME"),
      Setting{"--config", command, "A config value; repeatable"}.takes("KEY=NUMBER"),
      Setting{"--steps", command, "Steps"}.from(1, 100'000'000).with_default(),
      Setting{"-b,--batch", command, "Images of a step"}.from(1, 1 << 16).with_default(),
      Setting{"--warmup", command, "Steps until the rate is reached"}
          .under("Training")
          .from(1, 100'000'000)
          .with_default(),
      Setting{"--save-every", command, "Steps between checkpoints"}
          .under("Training")
          .from(1, 100'000'000)
          .with_default(),
      Setting{"--seed", command, "Of weights, the order of images and everything that is drawn"}
          .from(0, 0xffffffff)
          .with_default(),
      Setting{"--resume", command, "Continue from the newest checkpoint, with the same bits as an uninterrupted run"}
          .no_variable(),
  };
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

void ImageTrainingFlags::add(CLI::App& app) {
  add_settings(app, "data", data, "--out", out, "--family", settings.family, "--shape", settings.size, "--config",
               config, "--steps", steps, "--batch", batch, "--warmup", warmup, "--save-every", save_every, "--seed",
               settings.seed, "--resume", resume);
}

std::unique_ptr<apps::Network> begun_on_images(run::Engine& engine, const model::arch::Library& library,
                                               const ImageTrainingFlags& flags, const graph::Config& of_images,
                                               const std::string& document) {
  if (flags.resume) return apps::Network::load(engine, library, flags.out);
  if (model::file::latest_checkpoint(flags.out))
    throw Error(Exit::usage, fmt::format("{} holds a run", flags.out),
                "--resume goes on with it; or name another folder");
  if (flags.settings.family.empty()) throw Error(Exit::usage, "no --family", fmt::format("{} names some", document));
  apps::NetworkSettings settings = flags.settings;
  settings.config = of_images;
  for (const auto& [key, value] : named_numbers(flags.config)) settings.config[key] = value;
  return std::make_unique<apps::Network>(engine, library, std::move(settings));
}

bool train_on_images(apps::Network& network, const ImageTrainingFlags& flags,
                     const std::function<apps::NetworkInputs(int64_t)>& batch,
                     const std::function<double(int64_t)>& rate) {
  Stopwatch last_line;
  double sum = 0;
  int64_t counted = 0;
  std::optional<SavesWhenStopped> saves;  // once there is something to save
  while (network.steps() < flags.steps) {
    if (interrupted()) {
      network.save(flags.out);
      note(fmt::format("interrupted at step {}; --resume goes on from there", network.steps()));
      return false;
    }
    const int64_t step = network.steps();
    sum += network.step("loss", batch(step), rate(step) * std::min(1.0, (step + 1.0) / flags.warmup));
    ++counted;
    if (!saves) saves.emplace();
    const bool is_last = network.steps() == flags.steps;
    if (is_last || last_line.seconds() >= kSecondsOfALine) {
      const double speed = counted / last_line.seconds();
      put(fmt::format("step {}/{} | loss {:.4f} | {:.1f} images/s | {} left\n", network.steps(), flags.steps,
                      sum / counted, speed * flags.batch, format_duration((flags.steps - network.steps()) / speed)));
      last_line.restart();
      sum = 0;
      counted = 0;
    }
    if (is_last || network.steps() % flags.save_every == 0) network.save(flags.out);
  }
  return true;
}

}  // namespace lumen::cli
