// lumen classify train FOLDER -o RUN
#include <algorithm>

#include "apps/classify/classify.h"
#include "apps/classify/verbs/verbs.h"
#include "apps/image_fit/image_fit.h"
#include "apps/image_training/image_training.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

constexpr int64_t kTestBatch = 100;

struct ClassifyTrainFlags : ImageTrainingFlags {
  int64_t test = 0;
  bool augment = false, no_augment = false, no_steps_down = false;
};

double test_accuracy(apps::Network& network, const ClassifyTrainFlags& flags) {
  const apps::Images images = apps::read_images(flags.data, "t10k");
  apps::require_images_fit(images, network);
  return classify::recognized(
      images, network, flags.test, std::min(kTestBatch, images.count),
      [&](const apps::NetworkInputs& inputs) { return network.run(kLogits, inputs); }, &interrupted());
}

int classify_train(const Shared& shared, ClassifyTrainFlags flags) {
  const model::arch::LibraryRef library = shared.library();
  const apps::Images images = apps::read_images(flags.data, "train");
  const FolderLock lock(flags.out);
  run::Engine engine = shared.engine();
  if (flags.rate == 0) flags.rate = flags.settings.optimizer.name == "sgd" ? 0.1 : 1e-3;
  const auto network = begun_on_images(engine, *library, flags,
                                       {{"channels", double(images.channels)},
                                        {"classes", double(images.classes())},
                                        {"size", double(std::max(images.height, images.width))}},
                                       "docs/guide/classify.md");
  apps::require_images_fit(images, *network);
  note(fmt::format("{} images; {}: {} numbers are trained", images.count, network->settings().family,
                   network->trained_numbers()));
  catch_interrupts();
  const bool moves = flags.augment || (images.channels > 1 && !flags.no_augment);
  const bool is_whole = train_on_images(
      *network, flags,
      [&](int64_t step) { return classify::classify_batch(images, *network, step, flags.batch, moves); },
      [&](int64_t step) {
        return flags.no_steps_down ? flags.rate : classify::stepped_rate(flags.rate, step, flags.steps);
      });
  if (!is_whole) return exit_code(Exit::interrupted);
  put(fmt::format("recognized {:.2f} % of the t10k part\n", 100 * test_accuracy(*network, flags)));
  put(fmt::format("wrote {}\n", model::file::latest_checkpoint(flags.out)->string()));
  return 0;
}

}  // namespace

void add_classify_train(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ClassifyTrainFlags>();
  CLI::App* sub = app.add_subcommand("train", "Train a family on images and their labels");
  model::recipe::OptimizerSettings& o = flags->settings.optimizer;
  o.name = "sgd";
  o.weight_decay = 1e-4;
  o.max_norm = 0;
  flags->add(*sub);
  add_settings(*sub, "--optimizer", o.name, "--weight-decay", o.weight_decay, "--clip", o.max_norm, "--lr", flags->rate,
               "--constant", flags->no_steps_down, "--augment", flags->augment, "--no-augment", flags->no_augment,
               "--test", flags->test);
  sub->footer(
      "Examples:\n"
      "  lumen diffuse data -o shapes\n"
      "  lumen classify train shapes --family NAME -o run --steps 500");
  set_action(*sub, command, flags, classify_train);
}

}  // namespace lumen::cli
