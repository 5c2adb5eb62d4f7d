// lumen diffuse sample RUN -o PICTURE.png
#include "apps/diffuse/stored.h"
#include "apps/diffuse/verbs/verbs.h"
#include "apps/images/picture.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

struct DiffuseSampleFlags {
  std::string run, out, sampler;
  std::vector<int64_t> labels;
  int64_t count = 0, columns = 10;
  diffuse::Sampling how;
};

int diffuse_sample(const Shared& shared, DiffuseSampleFlags flags) {
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  const diffuse::DrawingNetwork drawing = diffuse::load_drawing(engine, *library, flags.run);
  apps::Network* const network = drawing.network.get();
  flags.how.change = drawing.change;
  flags.how.sampler =
      flags.sampler.empty() ? diffuse::usual_sampler(*network) : diffuse::diffusion_sampler(flags.sampler);
  const int64_t classes = network->config("classes"), count = flags.count > 0 ? flags.count : flags.columns * classes;
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < count; ++i)
    labels.push_back(flags.labels.empty() ? i / flags.columns % classes : flags.labels[i % std::ssize(flags.labels)]);
  catch_interrupts();
  Progress progress;
  const std::vector<float> images = diffuse::sampled(*network, labels, flags.how, &interrupted(), [&](int64_t done) {
    progress.update(fmt::format("{} of {} images", done, count));
  });
  if (interrupted()) return exit_code(Exit::interrupted);
  write_file_atomic(flags.out,
                    apps::picture_of(images, network->config("size"), network->config("channels"), flags.columns));
  const std::string sampler = !flags.sampler.empty()           ? flags.sampler
                              : diffuse::gives_noise(*network) ? "ddim"
                                                               : "euler";
  put(fmt::format("wrote {}: {} images by {}, {} steps, guidance {}{}\n", flags.out, count, sampler, flags.how.steps,
                  flags.how.guidance, drawing.method.empty() ? "" : ", " + drawing.method));
  return 0;
}

}  // namespace

void add_diffuse_sample(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DiffuseSampleFlags>();
  CLI::App* sub = app.add_subcommand("sample", "Generate images: a picture of all in a grid");
  add_settings(*sub, "run", flags->run, "--out", flags->out, "--label", flags->labels, "--count", flags->count,
               "--columns", flags->columns, "--sampler", flags->sampler, "--steps", flags->how.steps, "--guidance",
               flags->how.guidance, "--batch", flags->how.batch, "--seed", flags->how.seed);
  sub->footer(
      "Examples:\n"
      "  lumen diffuse sample run -o images.png\n"
      "  lumen diffuse sample run -o threes.png --label 3 --count 20 --sampler dpm2 --steps 15");
  set_action(*sub, command, flags, diffuse_sample);
}

}  // namespace lumen::cli
