// lumen classify train FOLDER -o RUN
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "cli/classify/classify.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "model/classify/classify.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

constexpr double kTrainLineSeconds = 5;
constexpr int64_t kTestBatch = 100;

struct ClassifyTrainFlags {
  std::string data, out;
  std::vector<std::string> config;
  model::NetworkSettings settings;
  double rate = 0;
  int64_t steps = 2000, batch = 64, warmup = 1, save_every = 1000, test = 0;
  bool resume = false, augment = false, no_augment = false, no_steps_down = false;
};

std::unique_ptr<model::Network> begun_classifier(run::Engine& engine, const model::Library& library,
                                                 const model::Images& images, ClassifyTrainFlags& flags) {
  const std::filesystem::path out = flags.out;
  if (flags.resume) return model::Network::load(engine, library, out);
  if (model::latest_checkpoint(out))
    throw Error(Exit::usage, fmt::format("{} holds a run", flags.out),
                "--resume goes on with it; or name another folder");
  if (flags.settings.family.empty())
    throw Error(Exit::usage, "no --family", "one that classifies images, see docs/classify.md");
  flags.settings.config["channels"] = images.channels;
  flags.settings.config["classes"] = images.classes();
  flags.settings.config["size"] = std::max(images.height, images.width);
  for (const auto& [key, value] : named_numbers(flags.config)) flags.settings.config[key] = value;
  return std::make_unique<model::Network>(engine, library, flags.settings);
}

double test_accuracy(model::Network& network, const ClassifyTrainFlags& flags) {
  const model::Images images = model::read_images(flags.data, "t10k");
  model::require_images_fit(images, network);
  return model::recognized(
      images, network, flags.test, std::min(kTestBatch, images.count),
      [&](const model::NetworkInputs& inputs) { return network.run(kLogits, inputs); }, &interrupted());
}

int train_classifier(model::Network& network, const model::Images& images, const ClassifyTrainFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  const bool moves = flags.augment || (images.channels > 1 && !flags.no_augment);
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
    const double rate = flags.no_steps_down ? flags.rate : model::stepped_rate(flags.rate, step, flags.steps);
    sum += network.step("loss", model::classify_batch(images, network, step, flags.batch, moves),
                        rate * std::min(1.0, (step + 1.0) / flags.warmup));
    ++counted;
    const bool is_last = network.steps() == flags.steps;
    if (is_last || since(said) >= kTrainLineSeconds) {
      const double speed = counted / since(said);
      put(fmt::format("step {}/{} | loss {:.4f} | {:.1f} images/s | {} left\n", network.steps(), flags.steps,
                      sum / counted, speed * flags.batch, format_duration((flags.steps - network.steps()) / speed)));
      said = Clock::now();
      sum = 0;
      counted = 0;
    }
    if (is_last || network.steps() % flags.save_every == 0) network.save(flags.out);
  }
  put(fmt::format("recognized {:.2f} % of the t10k part\n", 100 * test_accuracy(network, flags)));
  put(fmt::format("wrote {}\n", model::latest_checkpoint(flags.out)->string()));
  return 0;
}

int classify_train(const Shared& shared, ClassifyTrainFlags flags) {
  const model::LibraryRef library = shared.library();
  const model::Images images = model::read_images(flags.data, "train");
  require_writable_folder(flags.out);
  const FolderLock lock(flags.out);
  run::Engine engine = shared.engine();
  if (flags.rate == 0) flags.rate = flags.settings.optimizer.name == "sgd" ? 0.1 : 1e-3;
  const auto network = begun_classifier(engine, *library, images, flags);
  model::require_images_fit(images, *network);
  note(fmt::format("{} images; {}: {} numbers are trained", images.count, network->settings().family,
                   network->trained_numbers()));
  catch_interrupts();
  return train_classifier(*network, images, flags);
}

}  // namespace

void add_classify_train(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ClassifyTrainFlags>();
  CLI::App* sub = app.add_subcommand("train", "Train a family on images and what they show");
  model::OptimizerSettings& o = flags->settings.optimizer;
  o.name = "sgd";
  o.weight_decay = 1e-4;
  o.max_norm = 0;
  sub->add_option("data", flags->data, "Folder of IDX files: train-images-idx3-ubyte, train-labels-idx1-ubyte (.gz)")
      ->required()
      ->type_name("FOLDER");
  sub->add_option("-o,--out", flags->out, "Folder of the run")->required()->type_name("RUN");
  sub->add_option("--family", flags->settings.family, "Family of models/*.lum that classifies images")
      ->type_name("NAME");
  sub->add_option("--shape", flags->settings.size, "Size that the family names")->type_name("NAME");
  sub->add_option("--config", flags->config, "A config value; repeatable")->type_name("KEY=NUMBER");
  sub->add_option("--optimizer", o.name, "sgd (with momentum) or adamw")
      ->check(CLI::IsMember({"sgd", "adamw"}))
      ->capture_default_str();
  sub->add_option("--weight-decay", o.weight_decay, "Of matrices")->check(real(0, 1))->capture_default_str();
  sub->add_option("--clip", o.max_norm, "Most norm of all gradients; 0: any")
      ->check(real(0, 1e9))
      ->capture_default_str();
  sub->add_option("--steps", flags->steps, "Steps")->check(whole(1, 100'000'000))->capture_default_str();
  sub->add_option("-b,--batch", flags->batch, "Images of a step")->check(whole(1, 1 << 16))->capture_default_str();
  sub->add_option("--lr,--rate", flags->rate, "Learning rate; 0: 0.1 of sgd, 0.001 of adamw")->check(real(0, 10));
  sub->add_option("--warmup", flags->warmup, "Steps until it is reached")
      ->check(whole(1, 100'000'000))
      ->capture_default_str();
  sub->add_flag("--constant", flags->no_steps_down,
                "The rate stays, where it would fall to a tenth at half of the steps "
                "and at three quarters");
  sub->add_flag("--augment", flags->augment, "Move and mirror images; those with colours are unless --no-augment");
  sub->add_flag("--no-augment", flags->no_augment, "Do not");
  sub->add_option("--test", flags->test, "Images of the t10k part that are tried at the end; 0: all")
      ->check(whole(0, 100'000'000));
  sub->add_option("--save-every", flags->save_every, "Steps between checkpoints")
      ->check(whole(1, 100'000'000))
      ->capture_default_str();
  sub->add_option("--seed", flags->settings.seed, "Of weights, the order of images and how they are moved")
      ->check(whole(0, 0xffffffff))
      ->capture_default_str();
  sub->add_flag("--resume", flags->resume, "Go on from the newest checkpoint, as if nothing had happened");
  add_shared_flags(*sub, command.shared);
  sub->footer(
      "Examples:\n"
      "  lumen diffuse data -o shapes\n"
      "  lumen classify train shapes --family NAME -o run --steps 500");
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] { return classify_train(*shared, *flags); };
  });
}

}  // namespace lumen::cli
