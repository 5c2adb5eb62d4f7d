// lumen diffuse train FOLDER -o RUN
#include "apps/diffuse/diffuse.h"
#include "apps/diffuse/verbs/verbs.h"
#include "apps/image_training/image_training.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/file/checkpoint.h"

namespace lumen::cli {
namespace {

int diffuse_train(const Shared& shared, const ImageTrainingFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  const apps::Images images = apps::read_images(flags.data, "train");
  const FolderLock lock(flags.out);
  run::Engine engine = shared.engine();
  const auto network = begun_on_images(engine, *library, flags,
                                       {{"channels", double(images.channels)}, {"classes", double(images.classes())}},
                                       "docs/guide/diffuse.md");
  note(fmt::format("{} images; {}: {} numbers are trained", images.count, network->settings().family,
                   network->trained_numbers()));
  catch_interrupts();
  const bool is_whole = train_on_images(
      *network, flags, [&](int64_t step) { return diffuse::diffusion_batch(images, *network, step, flags.batch); },
      [&](int64_t) { return flags.rate; });
  if (!is_whole) return exit_code(Exit::interrupted);
  put(fmt::format("wrote {}\n", model::file::latest_checkpoint(flags.out)->string()));
  return 0;
}

}  // namespace

void add_diffuse_train(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ImageTrainingFlags>();
  CLI::App* sub = app.add_subcommand("train", "Train a family on images and their labels");
  flags->rate = 5e-4;
  flags->steps = 5000;
  flags->warmup = 200;
  flags->settings.optimizer.weight_decay = 0;
  flags->settings.optimizer.ema_decay = 0.999;
  flags->add(*sub);
  add_settings(*sub, "--lr", flags->rate, "--ema", flags->settings.optimizer.ema_decay);
  sub->footer(
      "Examples:\n"
      "  lumen diffuse data -o shapes\n"
      "  lumen diffuse train shapes --family NAME -o run --steps 2000");
  set_action(*sub, command, flags, diffuse_train);
}

}  // namespace lumen::cli
