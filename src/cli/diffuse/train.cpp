// lumen diffuse train FOLDER -o RUN
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "cli/diffuse/diffuse.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "model/diffuse/diffuse.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

constexpr double kLineSeconds = 5;

struct DiffuseTrainFlags {
  std::string data, out;
  std::vector<std::string> config;
  model::NetworkSettings settings;
  double rate = 5e-4;
  int64_t steps = 5000, batch = 64, warmup = 200, save_every = 1000;
  bool resume = false;
};

std::unique_ptr<model::Network> begin(run::Engine& engine, const model::Library& library, const model::Images& images,
                                      DiffuseTrainFlags& flags) {
  const std::filesystem::path out = flags.out;
  if (flags.resume) return model::Network::load(engine, library, out);
  if (model::latest_checkpoint(out))
    throw Error(Exit::usage, fmt::format("{} holds a run", flags.out),
                "--resume goes on with it; or name another folder");
  if (flags.settings.family.empty())
    throw Error(Exit::usage, "no --family", "one that makes images, see docs/diffuse.md");
  flags.settings.config["channels"] = images.channels;
  flags.settings.config["classes"] = images.classes();
  for (const auto& [key, value] : named_numbers(flags.config)) flags.settings.config[key] = value;
  return std::make_unique<model::Network>(engine, library, flags.settings);
}

int train_steps(model::Network& network, const model::Images& images, const DiffuseTrainFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  Clock::time_point said = Clock::now();
  double sum = 0;
  int64_t counted = 0;
  while (network.steps() < flags.steps) {
    if (interrupted()) {
      network.save(flags.out);
      note(fmt::format("interrupted at step {}; --resume goes on from there", network.steps()));
      return exit_code(Exit::interrupted);
    }
    const int64_t step = network.steps();
    const double rate = flags.rate * std::min(1.0, (step + 1.0) / flags.warmup);
    sum += network.step("loss", model::diffusion_batch(images, network, step, flags.batch), rate);
    ++counted;
    const bool is_last = network.steps() == flags.steps;
    if (is_last || since(said) >= kLineSeconds) {
      const double speed = counted / since(said);
      put(fmt::format("step {}/{} | loss {:.4f} | {:.1f} images/s | {} left\n", network.steps(), flags.steps,
                      sum / counted, speed * flags.batch, format_duration((flags.steps - network.steps()) / speed)));
      said = Clock::now();
      sum = 0;
      counted = 0;
    }
    if (is_last || network.steps() % flags.save_every == 0) network.save(flags.out);
  }
  put(fmt::format("wrote {}\n", model::latest_checkpoint(flags.out)->string()));
  return 0;
}

int diffuse_train(const Shared& shared, DiffuseTrainFlags flags) {
  const model::LibraryRef library = shared.library();
  const model::Images images = model::read_images(flags.data, "train");
  require_writable_folder(flags.out);
  const FolderLock lock(flags.out);
  run::Engine engine = shared.engine();
  const auto network = begin(engine, *library, images, flags);
  note(fmt::format("{} images; {}: {} numbers are trained", images.count, network->settings().family,
                   network->trained_numbers()));
  catch_interrupts();
  return train_steps(*network, images, flags);
}

}  // namespace

void add_diffuse_train(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DiffuseTrainFlags>();
  CLI::App* sub = app.add_subcommand("train", "Train a family on images and what they show");
  flags->settings.optimizer.weight_decay = 0;
  flags->settings.optimizer.ema_decay = 0.999;
  sub->add_option("data", flags->data, "Folder of IDX files: train-images-idx3-ubyte, train-labels-idx1-ubyte (.gz)")
      ->required()
      ->type_name("FOLDER");
  sub->add_option("-o,--out", flags->out, "Folder of the run")->required()->type_name("RUN");
  sub->add_option("--family", flags->settings.family, "Family of models/*.lum that makes images")->type_name("NAME");
  sub->add_option("--shape", flags->settings.size, "Size that the family names")
      ->type_name("NAME")
      ->capture_default_str();
  sub->add_option("--config", flags->config, "A config value; repeatable")->type_name("KEY=NUMBER");
  sub->add_option("--steps", flags->steps, "Steps")->check(whole(1, 100'000'000))->capture_default_str();
  sub->add_option("-b,--batch", flags->batch, "Images of a step")->check(whole(1, 1 << 16))->capture_default_str();
  sub->add_option("--lr,--rate", flags->rate, "Learning rate")->check(real(1e-9, 1))->capture_default_str();
  sub->add_option("--warmup", flags->warmup, "Steps until it is reached")
      ->check(whole(1, 100'000'000))
      ->capture_default_str();
  sub->add_option("--ema", flags->settings.optimizer.ema_decay,
                  "Images are drawn by a mean of the weights, of which a step keeps so much; 0: by the weights")
      ->check(real(0, 1))
      ->capture_default_str();
  sub->add_option("--save-every", flags->save_every, "Steps between checkpoints")
      ->check(whole(1, 100'000'000))
      ->capture_default_str();
  sub->add_option("--seed", flags->settings.seed, "Of weights, the order of images, noise and times")
      ->check(whole(0, 0xffffffff))
      ->capture_default_str();
  sub->add_flag("--resume", flags->resume, "Go on from the newest checkpoint, as if nothing had happened");
  add_shared_flags(*sub, command.shared);
  sub->footer(
      "Examples:\n"
      "  lumen diffuse data -o shapes\n"
      "  lumen diffuse train shapes --family NAME -o run --steps 2000");
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] { return diffuse_train(*shared, *flags); };
  });
}

}  // namespace lumen::cli
