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
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

constexpr double kSecondsOfALine = 5;

}  // namespace

void ImageTrainingFlags::add(CLI::App& app, const std::string& families) {
  app.add_option("data", data, "Folder of IDX files: train-images-idx3-ubyte, train-labels-idx1-ubyte (.gz)")
      ->check(reads(Reads::folder))
      ->required()
      ->type_name("FOLDER");
  app.add_option("-o,--out", out, "Folder of the run")->check(writes(Writes::folder))->required()->type_name("RUN");
  app.add_option("--family", settings.family, "Family of models/*.lum that " + families)->type_name("NAME");
  app.add_option("--shape", settings.size, "Size that the family names")->type_name("NAME")->capture_default_str();
  app.add_option("--config", config, "A config value; repeatable")->type_name("KEY=NUMBER");
  app.add_option("--steps", steps, "Steps")->check(whole(1, 100'000'000))->capture_default_str();
  app.add_option("-b,--batch", batch, "Images of a step")->check(whole(1, 1 << 16))->capture_default_str();
  app.add_option("--warmup", warmup, "Steps until the rate is reached")
      ->check(whole(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--save-every", save_every, "Steps between checkpoints")
      ->check(whole(1, 100'000'000))
      ->capture_default_str();
  app.add_option("--seed", settings.seed, "Of weights, the order of images and everything that is drawn")
      ->check(whole(0, 0xffffffff))
      ->capture_default_str();
  app.add_flag("--resume", resume, "Continue from the newest checkpoint, with the same bits as an uninterrupted run");
}

std::unique_ptr<apps::Network> begun_on_images(run::Engine& engine, const model::Library& library,
                                               const ImageTrainingFlags& flags, const graph::Config& of_images,
                                               const std::string& document) {
  if (flags.resume) return apps::Network::load(engine, library, flags.out);
  if (model::latest_checkpoint(flags.out))
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
