// lumen diffuse sample RUN -o PICTURE.png
#include "apps/diffuse/stored.h"
#include "apps/diffuse/verbs/verbs.h"
#include "apps/images/picture.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/paths/paths.h"

namespace lumen::cli {
namespace {

struct DiffuseSampleFlags {
  std::string run, out, sampler;
  std::vector<int64_t> labels;
  int64_t count = 0, columns = 10;
  diffuse::Sampling how;
};

int diffuse_sample(const Shared& shared, DiffuseSampleFlags flags) {
  const model::LibraryRef library = shared.library();
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
  sub->add_option("run", flags->run, "Folder of a run")->check(reads(Reads::run))->required()->type_name("RUN");
  sub->add_option("-o,--out", flags->out, "Picture to write")
      ->check(writes(Writes::file))
      ->required()
      ->type_name("FILE.png");
  sub->add_option("--label", flags->labels, "What they show, by turns; without it a row of each class")->delimiter(',');
  sub->add_option("--count", flags->count, "Images; without it as many as columns of each class")
      ->check(whole(1, 1'000'000));
  sub->add_option("--columns", flags->columns, "Images side by side")->check(whole(1, 1000))->capture_default_str();
  sub->add_option("--sampler", flags->sampler,
                  "euler, heun or dpm2 (DPM-Solver++ of second order); ddim for families that predict the noise")
      ->check(CLI::IsMember({"euler", "heun", "dpm2", "ddim"}));
  sub->add_option("--steps", flags->how.steps, "Steps from noise to image")
      ->check(whole(1, 100'000))
      ->capture_default_str();
  sub->add_option("--guidance", flags->how.guidance, "How far away from what is made without a label; 1: not")
      ->check(real(0, 100))
      ->capture_default_str();
  sub->add_option("--batch", flags->how.batch, "Images at once")->check(whole(1, 1 << 16))->capture_default_str();
  sub->add_option("--seed", flags->how.seed, "Of the noise")->check(whole(0, 0xffffffff))->capture_default_str();
  add_shared_flags(*sub, command.shared);
  sub->footer(
      "Examples:\n"
      "  lumen diffuse sample run -o images.png\n"
      "  lumen diffuse sample run -o threes.png --label 3 --count 20 --sampler dpm2 --steps 15");
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] { return diffuse_sample(*shared, *flags); };
  });
}

}  // namespace lumen::cli
